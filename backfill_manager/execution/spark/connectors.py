"""Hadoop's connectors for a warehouse in an object store: their jars, and Spark's settings for them.

They are those of the Hadoop that PySpark carries. hadoop-aws asks for the AWS SDK's bundle (600 MB); S3 needs these modules of
it (10 MB), among them STS for roles and web identities. Credentials are found by each connector's own chain (environment,
profile of the machine): none is taken up here.

`python -m backfill_manager.execution.spark.connectors s3a://` fetches what a warehouse there needs, and prints where it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from backfill_manager.execution.spark.jars import DELTA, Jar, jar_paths

_AWS: Final = "software.amazon.awssdk"
S3: Final = (
    Jar("org.apache.hadoop", "hadoop-aws", "3.5.0", "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa"),
    Jar(_AWS, "annotations", "2.35.4", "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8"),
    Jar(_AWS, "apache-client", "2.35.4", "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740"),
    Jar(_AWS, "arns", "2.35.4", "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380"),
    Jar(_AWS, "auth", "2.35.4", "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994"),
    Jar(_AWS, "aws-core", "2.35.4", "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623"),
    Jar(_AWS, "aws-query-protocol", "2.35.4", "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f"),
    Jar(_AWS, "aws-xml-protocol", "2.35.4", "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d"),
    Jar(_AWS, "checksums", "2.35.4", "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948"),
    Jar(_AWS, "checksums-spi", "2.35.4", "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec"),
    Jar(_AWS, "crt-core", "2.35.4", "2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62"),
    Jar(_AWS, "endpoints-spi", "2.35.4", "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00"),
    Jar(_AWS, "http-auth", "2.35.4", "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491"),
    Jar(_AWS, "http-auth-aws", "2.35.4", "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01"),
    Jar(_AWS, "http-auth-aws-eventstream", "2.35.4", "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd"),
    Jar(_AWS, "http-auth-spi", "2.35.4", "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c"),
    Jar(_AWS, "http-client-spi", "2.35.4", "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb"),
    Jar(_AWS, "identity-spi", "2.35.4", "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf"),
    Jar(_AWS, "json-utils", "2.35.4", "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc"),
    Jar(_AWS, "metrics-spi", "2.35.4", "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487"),
    Jar(_AWS, "netty-nio-client", "2.35.4", "b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc"),
    Jar(_AWS, "profiles", "2.35.4", "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8"),
    Jar(_AWS, "protocol-core", "2.35.4", "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5"),
    Jar(_AWS, "regions", "2.35.4", "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca"),
    Jar(_AWS, "retries", "2.35.4", "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469"),
    Jar(_AWS, "retries-spi", "2.35.4", "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd"),
    Jar(_AWS, "s3", "2.35.4", "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc"),
    Jar(_AWS, "s3-transfer-manager", "2.35.4", "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476"),
    Jar(_AWS, "sdk-core", "2.35.4", "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4"),
    Jar(_AWS, "sts", "2.35.4", "8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2"),
    Jar(_AWS, "third-party-jackson-core", "2.35.4", "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea"),
    Jar(_AWS, "utils", "2.35.4", "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8"),
    Jar(_AWS, "utils-lite", "2.35.4", "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be"),
    Jar("software.amazon.eventstream", "eventstream", "1.0.1",
        "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822"),
    Jar("org.reactivestreams", "reactive-streams", "1.0.4", "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28"),
    Jar("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e"),
)  # fmt: skip
AZURE: Final = (
    Jar("org.apache.hadoop", "hadoop-azure", "3.5.0", "220b5db238b82437960e4b81c7e3eefa4eff2a03ad502887497f11d0ad86e663"),
    Jar("org.wildfly.openssl", "wildfly-openssl", "2.2.5.Final",
        "71fb7932f99a727edb23c5a2cb8c6855ac7196fad41aa0669b3998e277165154"),
    Jar("org.hdrhistogram", "HdrHistogram", "2.1.12", "9b47fbae444feaac4b7e04f0ea294569e4bc282bc69d8c2ce2ac3f23577281e2"),
)  # fmt: skip
CONNECTORS: Final[Mapping[str, tuple[Jar, ...]]] = {"s3": S3, "s3a": S3, "abfs": AZURE, "abfss": AZURE}


def spark_jars(warehouse: str) -> list[str]:
    """Paths of the jars that Spark is started with: Delta's, and those of the connector that the warehouse needs."""
    return jar_paths(_jars(warehouse))


def missing_jars(warehouse: str) -> list[str]:
    """The file names of those of them that are still to be fetched."""
    return [jar.file_name for jar in _jars(warehouse) if not jar.path.exists()]


def connector_conf(warehouse: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Spark's settings for the connector of the warehouse: what delta-rs reads of the environment, without any secret, so that
    one set of variables is enough for state and warehouse."""
    if CONNECTORS.get(_scheme(warehouse)) is not S3:
        return {}
    conf = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if endpoint := environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"):
        by_host = environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true"
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
        conf["spark.hadoop.fs.s3a.path.style.access"] = str(not by_host).lower()
    if region := environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"):
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    return conf


def _jars(warehouse: str) -> tuple[Jar, ...]:
    return (*DELTA, *CONNECTORS.get(_scheme(warehouse), ()))


def _scheme(place: str) -> str:
    return urlsplit(place).scheme.lower()


if __name__ == "__main__":
    print(*(path for warehouse in sys.argv[1:] for path in spark_jars(warehouse)), sep="\n")
