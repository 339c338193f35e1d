"""What is masked, in texts, code and JSON values, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_manager.masking import (
    is_secret,
    mask_code,
    mask_settings,
    mask_text,
    mask_values,
    patterns,
    secrets_in,
    unmask,
)
from backfill_manager.masking.text import _hidden, _hidden_at_names


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("Authorization: Basic abc==", "Authorization: Basic ***"),
        ("{'Authorization': 'Bearer abc.def'}", "{'Authorization': '***'}"),
        ("AWS_SECRET_ACCESS_KEY=ab/c+== next", "AWS_SECRET_ACCESS_KEY=*** next"),
        ("token=abc, (api_key=abc) and password: hunter2", "token=***, (api_key=***) and password: ***"),
        ('{"db_password": "hun\\"ter 2", "rows": 5}', '{"db_password": "***", "rows": 5}'),
        ("Row(password='hunter 2', rows=5)", "Row(password='***', rows=5)"),
        (r"{\"password\": \"hunter2\", \"rows\": 5}", r"{\"password\": \"***\", \"rows\": 5}"),
        ("os.environ['DB_PASSWORD'] = 'x y'", "os.environ['DB_PASSWORD'] = '***'"),
        ("tokens: ['a', 'b'] credentials={'user': 'a', 'pin': 'b'}", "tokens: *** credentials=***"),
        ('password="cut off', 'password="***" off'),
        ("dbPassword=x secretKey: y fs.s3a.secret.key=z", "dbPassword=*** secretKey: *** fs.s3a.secret.key=***"),
        ("DB_PASS=x;UID=sa;PWD=hunter2;", "DB_PASS=***;UID=sa;PWD=***;"),
        ("AccountName=a;AccountKey=Zm9v==;x", "AccountName=a;AccountKey=***;x"),
        ("https://a.blob.net/f?sv=2024&sig=ab%3D&se=2", "https://a.blob.net/f?sv=2024&sig=***&se=2"),
        ("WHERE `token` = 'hunter2' AND `token_count` = 5", "WHERE `token` = '***' AND `token_count` = 5"),
        ("jdbc:postgresql://h/db?user=a&password=b&ssl=true", "jdbc:postgresql://h/db?user=a&password=***&ssl=true"),
        ("s3://me:pa@ss@host/x https://ghp_abc@github.com/x", "s3://***@host/x https://***@github.com/x"),
        ("https://a.example.org/c?sv=1&sig=abc%3D", "https://a.example.org/c?sv=1&sig=***"),
        ("password=***", "password=***"),
        ("{b'password': b'hunter2'}, password=SecretStr('hunter2')",
         "{b'password': b'***'}, password=SecretStr('***')"),
        ("psql --password hunter2 --auth-token 'hun ter'", "psql --password *** --auth-token '***'"),
        ("Command '['psql', '--password', 'hunter2']' failed", "Command '['psql', '--password', '***']' failed"),
        ('reader.option("password", "hunter2").load()', 'reader.option("password", "***").load()'),
        ("[('password', 'hunter2'), ('user', 'me')]", "[('password', '***'), ('user', 'me')]"),
        ("USING jdbc OPTIONS (user 'me', password 'hunter2')", "USING jdbc OPTIONS (user 'me', password '***')"),
        ("CREATE USER me IDENTIFIED BY 'hunter2'", "CREATE USER me IDENTIFIED BY '***'"),
        ("dbPwd=hunter2 pw: hunter2 Secret key: hunter2", "dbPwd=*** pw: *** Secret key: ***"),
        ("{'user': 'me', 'pass': 'hunter2'}", "{'user': 'me', 'pass': '***'}"),
        ("a=1%26password%3Dhunter2", "a=1%26password%3D***"),
        ("<db:password>hunter2</db:password>", "<db:password>***</db:password>"),
        ("Cookie: session=hunter2; theme=dark", "Cookie: ***"),
        ("Authorization: ApiKey hunter2", "Authorization: ApiKey ***"),
        ("jdbc:oracle:thin:scott/tiger@//host", "jdbc:oracle:thin:scott/***@//host"),
        ("password=abc,token=def", "password=***,token=***"),
        ("password: abc token: def", "password: *** token: ***"),
        ("password: abc, token: def, user: me", "password: ***, token: ***, user: me"),
        ("password=se,cret next, user=me", "password=*** next, user=me"),
        ("(tokens=a,b,c) password=it's,me api_keys=a,b,user=me", "(tokens=***) password=*** api_keys=***,user=me"),
        ("`token <> 'abc'` failed: `api_key` != \"x\"", "`token <> '***'` failed: `api_key` != \"***\""),
        ("pwd LIKE 'a%' OR token not like 'b'", "pwd LIKE '***' OR token not like '***'"),
        ("WHERE t.token IN ('a', 'b') AND id IN (1)", "WHERE t.token IN *** AND id IN (1)"),
        ("SELECT 'hunter2' AS db_password, 'me' AS user", "SELECT '***' AS db_password, 'me' AS user"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nvQ==\n-----END RSA PRIVATE KEY-----",
         "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----"),
        ("db:\n  password: |\n    hunter2\n\n    and 3\n  user: me", "db:\n  password: ***\n    ***\n\n    ***\n  user: me"),
        ("- token: >-  # of mine\n    hunter2\n  user: me\n", "- token: ***  # of mine\n    ***\n  user: me\n"),
        ("read 'api_key': |2+\r\n    hunter2\r\nuser: me", "read 'api_key': ***\r\n    ***\r\nuser: me"),
        (r'raise ValueError("password: |\n    hunter2\n    and 3") in {"a": "x:\\n  token: >\\n    \"y\\n  n: 1"}',
         r'raise ValueError("password: ***    ***\n    ***") in {"a": "x:\\n  token: ***    ***\\n  n: 1"}'),
        ("user\tme\npassword\thunter2\n  db_token \t x\r\nfs.s3a.secret.key\t\ty",
         "user\tme\npassword\t***\n  db_token \t ***\r\nfs.s3a.secret.key\t\t***"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert mask_text(text) == shown
    assert mask_text(shown) == shown, "what is masked already stays so"


@pytest.mark.parametrize(
    "text",
    [
        "/a/path and 12:30:00 and s3://bucket/key and abfss://box@account.dfs.core.windows.net/x",
        "the token bucket is empty",
        "token_count=5 max_tokens=4096 tokens: 5 first_pass=3 bypass=x",
        "password=None token: null secret=True passwords=''",
        "password_file=/etc/pw token_type: jwt tokenizer=bert TOKENIZER=bert",
        "primary_key=flight_id partition_key: dest monkey=5 keyboard: de PWD=/home/x",
        "KeyError: 'password'",
        "f() missing 1 required positional argument: 'token'",
        "NoCredentialsError: Unable to locate credentials",
        "    token = fetch_token(url)",
        "def connect(password: str) -> None:",
        "the bearer token has expired",
        "unexpected token 'FROM', the option --password is required, argument --token needs a value",
        "password=None,user=me token=null,5 max_tokens=5,top_p=1 tokens=5,6,x",
        "password != None, token <> 5, token IN (SELECT t FROM x), token is not in the list, 'x' AS name, 'x' AS token_count",
        "a password, a token and a secret, each of them: unknown; user, token and password are missing",
        "user\tpassword\trole\nme\tsecret\tadmin",
        "token\tcount\na\t3\ntoken\tstring\ntoken\tvarchar(20)\ntokens\t5\ntoken_count\tx",
        "password\tthe one of the database",
        "  the token is\n    a | b\nof a password | this\n    and that\ntoken_type: |\n  jwt\nnotes: |\n  none of it",
        "select('token', 'user', 'x') of ['password', 'user'], if token > 5, first pass: 3",
    ],
)
def test_what_is_no_secret_is_not_masked(text: str) -> None:
    assert mask_text(text) == text


def test_secrets_of_the_environment_are_hidden_wherever_a_text_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "hunter2")
    monkeypatch.setenv("OTHER_TOKEN", "hunter2-and-more")
    monkeypatch.setenv("aws_secret_access_key", "line\none")
    monkeypatch.setenv("SHORT_KEY", "abc")
    monkeypatch.setenv("REGION", "eu-west-1")
    shown = mask_text(r"no hunter2, no hunter2-and-more, no 'line\none'; abc in eu-west-1, s3://me:word@host/x")
    assert shown == "no ***, no ***, no '***'; abc in eu-west-1, s3://***@host/x"
    assert mask_text("line\none") == "***"


@pytest.mark.parametrize("name", ["DB_PASS", "MYSQL_PASSWD", "ssh_passphrase", "PG_PWD", "API_KEY", "GH_TOKEN"])
def test_a_variable_that_is_named_like_a_secret_is_hidden(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "hunter2-")
    assert mask_text("no hunter2-") == "no ***"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("DEBUG_TOKEN", "true", "true"),
        ("APP_SECRET", "1", "1 of 1"),
        ("DB_PASSWORD", "password", "a password"),
        ("DB_PASSWORD", "flight", "the flights of a day"),
        ("PIN_SECRET", "123456", "rows=91234567"),
        ("TOKEN_TTL_SECONDS", "864000", "864000"),
        ("PARTITION_KEY", "flight_date", "by flight_date"),
        ("PWD", "/usr/nowhere", "in /usr/nowhere"),
        ("MY_CREDENTIALS", "/etc/passwd", "read /etc/passwd"),
    ],
)
def test_values_of_the_environment_that_would_hide_what_is_no_secret_are_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    monkeypatch.setenv(name, value)
    assert mask_text(text) == text


def test_a_secret_of_the_environment_is_masked_as_json_and_urls_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", 'p"ß/ 123')
    assert mask_text(r'in JSON "p\"\u00df/ 123", in a URL p%22%C3%9F%2F%20123') == 'in JSON "***", in a URL ***'
    assert (
        mask_text(r'in JSON "p\"ß/ 123", in a URL p%22%C3%9F/%20123 and p%22%C3%9F%2F+123')
        == 'in JSON "***", in a URL *** and ***'
    )


def test_a_secret_of_several_lines_is_masked_when_they_are_printed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TLS_PRIVATE_KEY", "-----BEGIN\n  MIIEvQIBADANBgkq\nab\n")
    assert [mask_text(line) for line in ("  MIIEvQIBADANBgkq", "ab")] == ["  ***", "ab"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"db_password": "x", "depth": 3}, {"db_password": "***", "depth": 3}),
        ({"db": {"api": [{"token": "x", "name": "n"}]}}, {"db": {"api": [{"token": "***", "name": "n"}]}}),
        ({"secrets": {"a": "x", "on": True, "pin": 5}}, {"secrets": {"a": "***", "on": True, "pin": "***"}}),
        ({"tokens": ["x", "y"]}, {"tokens": ["***", "***"]}),
        ({"tokens": 5, "token_count": 6, "token": None, "secret": ""}, None),
        ({"dsn": "s3://me:word@host", "note": "password: x"}, {"dsn": "s3://***@host", "note": "password: ***"}),
        (["plain", 1, None, 2.5, True], None),
    ],
)
def test_json_values_are_masked_by_their_names(value: Any, shown: Any) -> None:
    assert mask_values(value) == (value if shown is None else shown)


def test_texts_that_are_known_to_be_secret_are_masked_wherever_they_are() -> None:
    known = secrets_in(
        {"db": {"password": "hunter2", "user": "me-myself"}, "tokens": ["of-mine", 5], "passcode": 48151623}
    )
    assert known == ("hunter2", "of-mine", "48151623")
    assert mask_text("me-myself says hunter2", known) == "me-myself says ***"
    assert mask_values({"x": ["is of-mine"]}, more=known) == {"x": ["is ***"]}
    assert mask_values({"password": "hunter2", "note": "it is hunter2"}) == {"password": "***", "note": "it is ***"}


def test_what_was_shown_masked_comes_back_as_what_it_was() -> None:
    current = {
        "password": "hunter2",
        "note": "is hunter2",
        "deep": {"tokens": ["a", "b"], "n": 1},
        "dsn": "s3://a:b@c",
        "gone": 1,
    }
    edited = {**mask_values(current), "new": 2}
    del edited["gone"]
    edited["deep"]["n"] = 7
    assert unmask(edited, current) == {
        "password": "hunter2", "note": "is hunter2", "deep": {"tokens": ["a", "b"], "n": 7}, "dsn": "s3://a:b@c", "new": 2
    }  # fmt: skip
    assert unmask({"password": "changed"}, current) == {"password": "changed"}


def test_of_code_literal_texts_are_masked() -> None:
    code = 'token = ctx.params["token"]\nconnect(password="hunter 2", user="me")\nparams = {"api_key": \'abc\'}\n'
    shown = 'token = ctx.params["token"]\nconnect(password="***", user="me")\nparams = {"api_key": \'***\'}\n'
    assert mask_code(code) == shown
    assert (
        mask_code("""option("password", "x"); OPTIONS (password 'x')""")
        == """option("password", "***"); OPTIONS (password '***')"""
    )


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (
            'url = "jdbc:postgresql://h/db?user=me&password=hunter2"',
            'url = "jdbc:postgresql://h/db?user=me&password=***"',
        ),
        ("x = 1  # password=hunter2\n", "x = 1  # password=***\n"),
        ("SELECT 1 -- token=hunter2\nFROM x", "SELECT 1 -- token=***\nFROM x"),
        ('"""In one text: password=hunter2"""', '"""In one text: password=***"""'),
        (
            'run("psql --password hunter2", {b"password": b"hunter2"})',
            'run("psql --password ***", {b"password": b"***"})',
        ),
        ('f"token={token} {x!r}", os.environ["TOKEN"], token == wanted', None),
        ("SELECT a - -b FROM t WHERE token = :token", None),
        ("SELECT * FROM t WHERE token != :token AND token IN (:a, :b) AND 'x' AS name", None),
        (
            "SELECT 'hunter2' AS `api_key` FROM t WHERE `api_key` <> 'hunter2'",
            "SELECT '***' AS `api_key` FROM t WHERE `api_key` <> '***'",
        ),
        (
            'if conf["password"] == "hunter2" or token not in ["a", "b"]: ...',
            'if conf["password"] == "***" or token not in ***: ...',
        ),
    ],
)
def test_of_code_secrets_in_its_texts_and_comments_are_masked(code: str, shown: str | None) -> None:
    assert mask_code(code) == (code if shown is None else shown)


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ('password = """hunter2"""', 'password = """***"""'),
        ("f(token=r'''hunter2''', a=1)", "f(token=r'''***''', a=1)"),
        ('password = """\nhunter 2\nhun"ter\n"""\nx = 1', 'password = """\n***\n***\n"""\nx = 1'),
        ("d = {'token': '''hun\n  ter2'''}\nx = 1", "d = {'token': '''***\n  ***'''}\nx = 1"),
        ("password = 'hun \\\n  ter2'\nx = 1", "password = '***\n  ***'\nx = 1"),
        ("class A:\n    token: str = field(\n        default=other,\n    )", None),
        ('SQL = """\nSELECT a\n"""\ntoken = f"""{a}"""\nsecret = ""', None),
    ],
)
def test_of_code_secrets_in_texts_of_several_lines_are_masked(code: str, shown: str | None) -> None:
    assert mask_code(code) == (code if shown is None else shown)


BEGIN, END = (f"-----{word} RSA PRIVATE KEY-----" for word in ("BEGIN", "END"))


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (f"{BEGIN}\nMIIE\nvQ==\n{END}\nx = 1", f"{BEGIN}\n***\n***\n{END}\nx = 1"),
        (f'KEY = """{BEGIN}\nMIIE\n{END}"""\nx = 1', f'KEY = """{BEGIN}\n***\n{END}"""\nx = 1'),
        (f"# {BEGIN}\n# MIIE\n# {END}\nx = 1", f"# {BEGIN}\n***\n# {END}\nx = 1"),
        (f'"{BEGIN}\\n"\n"MIIE\\n"\n"{END}"\nx = 1', f'"{BEGIN}***"\n***\n"{END}"\nx = 1'),
    ],
)
def test_of_code_a_private_key_is_masked_and_lines_keep_their_numbers(code: str, shown: str) -> None:
    assert mask_code(code) == shown


def test_settings_keep_what_says_who_may_do_what() -> None:
    tokens = {"tokens": [{"name": "ci", "sha256": "0" * 64, "role": "viewer"}]}
    assert mask_settings(tokens) == {"tokens": [{"name": "ci", "sha256": "***", "role": "viewer"}]}
    assert is_secret("session_secret") and not is_secret("sha256")


def test_headers_of_a_lineage_server_are_masked_whatever_their_names() -> None:
    transport = {"type": "http", "custom_headers": {"X-Team": "a key", "Accept": "b"}, "auth": {"apiKey": "k"}}
    assert mask_settings({"openlineage": {"transport": transport}}) == {
        "openlineage": {
            "transport": {
                "type": "http",
                "custom_headers": {"X-Team": "***", "Accept": "***"},
                "auth": {"apiKey": "***"},
            }
        }
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("--index-url https://ada:hunter2@pypi.example/simple", "--index-url https://***@pypi.example/simple"),
        ("shop @ git+https://ghp_hunter2@git.example/shop", "shop @ git+https://***@git.example/shop"),
        ("-Djavax.net.ssl.trustStorePassword=hunter2", "-Djavax.net.ssl.trustStorePassword=***"),
        ("pandera==0.29", "pandera==0.29"),
    ],
)
def test_secrets_within_the_text_of_a_setting_are_masked(value: str, shown: str) -> None:
    assert mask_settings({"requirements": [value], "spark": {"conf": {"spark.x": value}}}) == {
        "requirements": [shown],
        "spark": {"conf": {"spark.x": shown}},
    }


@pytest.mark.usefixtures("must_end")
@pytest.mark.parametrize(
    "piece",
    [
        "a.",
        "token",
        "token ",
        "token_",
        "token=[",
        "token={[",
        "password='",
        'token=\\"',
        "bearer ",
        "://a:",
        "password=x ",
        "password=x,",
        "password=x,a'",
        "password=x,token",
        "('password', ",
        "--password ",
        "<password",
        "password '",
        "token <> '",
        "token in ('",
        "'a' as ",
        "'a\" as token",
        "-----BEGIN PRIVATE KEY-----",
        "token_",
        "password: |\n ",
        "password: | #",
        "password: |\\n",
        "password\t",
    ],
)
def test_a_long_text_is_searched_for_secrets_once_not_from_each_of_its_characters(piece: str) -> None:
    mask_text(piece * (600_000 // len(piece)))


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT * FROM t WHERE lower(token) = 'open.up'", "SELECT * FROM t WHERE lower(token) = '***'"),
        ("SELECT * FROM t WHERE 'open.up' = u.token AND a = 'b'", "SELECT * FROM t WHERE '***' = u.token AND a = 'b'"),
        (
            "SELECT 1 WHERE `token` BETWEEN 'open' AND 'up' AND a = 'b'",
            "SELECT 1 WHERE `token` BETWEEN '***' AND '***' AND a = 'b'",
        ),
        ("SELECT 1 WHERE token = lower('open.up')", "SELECT 1 WHERE token = lower('***')"),
        ("SELECT 1 WHERE sha2(password, 256)='open.up' OR a='b'", "SELECT 1 WHERE sha2(password, 256)='***' OR a='b'"),
        ("SELECT 1 WHERE token IS NOT DISTINCT FROM 'open.up'", "SELECT 1 WHERE token IS NOT DISTINCT FROM '***'"),
        ("SELECT array_contains(array('open.up'), token), 'b'", "SELECT array_contains(array('***'), token), 'b'"),
        ("SELECT 'b' AS label, token FROM t", "SELECT 'b' AS label, token FROM t"),
        ("SELECT a FROM (SELECT token FROM t) WHERE a = 'b'", "SELECT a FROM (SELECT token FROM t) WHERE a = 'b'"),
        ("SELECT 1; DELETE FROM t WHERE kind = 'b'", "SELECT 1; DELETE FROM t WHERE kind = 'b'"),
        (
            "INSERT INTO u (id, password) VALUES (1, 'open'), (2, 'up')",
            "INSERT INTO u (id, password) VALUES (1, '***'), (2, '***')",
        ),
    ],
)
def test_of_sql_the_texts_that_something_secret_meets_are_masked(sql: str, shown: str) -> None:
    assert mask_text(sql) == mask_code(sql) == shown
    assert mask_code(f'spark.sql("{sql}")') == f'spark.sql("{shown}")'
    assert mask_code(f'QUERY = """\n{sql}\n"""') == f'QUERY = """\n{shown}\n"""'


@pytest.mark.parametrize(
    ("plan", "shown"),
    [
        (
            "+- Filter (isnotnull(token#12) AND (token#12 = open.up))",
            "+- Filter (isnotnull(token#12) AND (token#12 = ***))",
        ),
        ("Filter (lower(token#3L) = open.up)", "Filter (lower(token#3L) = ***)"),
        ("Filter (token#3 <=> lower(open.up))", "Filter (token#3 <=> lower(***))"),
        ("Filter token#3 IN (open,up)", "Filter token#3 IN ***"),
        ("Join Inner, (token#3 = token#4)", "Join Inner, (token#3 = token#4)"),
        ("Project [token#3, (id#4L = 5) AS y#6]", "Project [token#3, (id#4L = 5) AS y#6]"),
    ],
)
def test_of_plans_of_spark_what_something_secret_is_compared_with_is_masked(plan: str, shown: str) -> None:
    assert mask_text(plan) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("mysql -h db -u me -popen.up sales", "mysql -h db -u me -p*** sales"),
        ("mysqldump -u me -p sales", "mysqldump -u me -p sales"),
        ("sshpass -p open.up ssh host -p 22", "sshpass -p *** ssh host -p 22"),
        ("curl -s -u me:open.up https://host", "curl -s -u me:*** https://host"),
        ("curl --user 'me:open.up' https://host", "curl --user 'me:***' https://host"),
        ("spark-submit --master local -p 3", "spark-submit --master local -p 3"),
        ("spark.hadoop.fs.s3a.secret.key  open.up", "spark.hadoop.fs.s3a.secret.key  ***"),
        ("get(url, auth=('me', 'open.up'))", "get(url, auth=('me', '***'))"),
        ("user=me pass=open.up", "user=me pass=***"),
        ("fail=2 pass=5", "fail=2 pass=5"),
        ("keytool -storepass open.up -keypass open.up", "keytool -storepass *** -keypass ***"),
        ("dbpass=open.up dbpwd: open.up userPass=open.up", "dbpass=*** dbpwd: *** userPass=***"),
        ("bypass=true compass=north", "bypass=true compass=north"),
    ],
)
def test_passwords_of_commands_and_settings_are_masked(line: str, shown: str) -> None:
    assert mask_text(line) == shown


@pytest.mark.parametrize(
    "piece",
    [
        "mysql ",
        "curl -u ",
        "auth=('a', ",
        "token#1 = a(b(",
        "token 'x' ), ",
        "select 'token' , (token",
        "between 'a",
        "values (((",
        "and `",
    ],
)
def test_a_long_text_is_searched_for_sql_once(piece: str) -> None:
    mask_text("select token " + piece * (300_000 // len(piece)))


_PIECES = st.sampled_from(
    [
        "password", "Passwords", "passenger", "passecret", "accesshared_key", "tokens", "token_count", "Secret", "\u017fecret",
        "PWD", "\u0130", "sas", "?sig=", "api_key", "\u212aey", " = ", "=", ": ", "<>", " <> ", "'x'", '"a b"', " in ('a', 'b')",
        " LIKE ", "#12) = x", "\\", '\\"', "\n", " ", ",", "(", ")", "[", "]", "{", "}", "word", "5",
    ]
)  # fmt: skip


@pytest.mark.parametrize("name", ["BEHIND", "COMPARED", "AMONG", "IN_PLAN", "NAMED", "NAMED_LITERAL"])
@given(pieces=st.lists(_PIECES, max_size=12))
def test_what_is_looked_for_at_names_is_all_there_is(name: str, pieces: list[str]) -> None:
    text, pattern = "".join(pieces), getattr(patterns, name)
    assert _hidden_at_names(text, (pattern,)) == pattern.sub(_hidden, text)


def test_a_long_line_without_a_name_is_not_searched_for_each_kind_of_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 600 ms of the manager for each 64 kB of JSON that a task printed with `key` in it."""
    line = json.dumps([{"key": number, "passenger": "monkey"} for number in range(1_500)])
    tried: list[str] = []
    for name in ("PAIR", "OPTION", "BEHIND", "COMPARED", "AMONG", "IN_PLAN", "NAMED", "ALIASED"):
        pattern = getattr(patterns, name)
        for way in ("sub", "match"):
            monkeypatch.setattr(pattern, way, lambda *_, name=name, **__: tried.append(name))
    assert mask_text(line) == line
    assert tried == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "post to https://hooks.slack.com/services/T0/B0/abcDEF failed",
            "post to https://hooks.slack.com/services/*** failed",
        ),
        ("(https://discord.com/api/webhooks/1/ab-c)", "(https://discord.com/api/webhooks/***)"),
        (
            "https://acme.webhook.office.com/webhookb2/1@2/IncomingWebhook/3",
            "https://acme.webhook.office.com/webhookb2/***",
        ),
        ("https://hooks.example.com/services/T0", "https://hooks.example.com/services/T0"),
    ],
)
def test_addresses_that_let_anybody_post_are_masked(text: str, shown: str) -> None:
    assert mask_text(text) == shown
