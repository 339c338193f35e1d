"""The tables that a SQL statement writes, by the plan of Spark's own parser.

Only names are collected: nothing is analysed and nothing runs. A table without a name in the text (EXECUTE IMMEDIATE, a view
over a table) is not found; a statement that writes it does not queue for it, and is retried when it conflicts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of

from backfill_manager.execution.spark.catalog import name_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = tuple[str, ...]  # of a table, in parts, as it was written

# What names the target of a statement that changes rows. Delta records a transaction with each of them, so that it lands
# once. `NamedRelation`s are no children of their plan, hence by the name of the field.
_ROWS: Final = {
    "InsertIntoStatement": "table",
    "MergeIntoTable": "targetTable",
    "UpdateTable": "table",
    "DeleteFromTable": "table",
    "OverwriteByExpression": "table",
    "OverwritePartitionsDynamic": "table",
}
# They make a table with rows in it: with a transaction, too.
_ROWS_OF_NEW_TABLE: Final = ("CreateTableAsSelect", "ReplaceTableAsSelect")
_MAKING_TABLES: Final = (*_ROWS_OF_NEW_TABLE, "CreateTable", "ReplaceTable")
_OTHER: Final = {"CloneTableStatement": "target", "RestoreTableStatement": "table", "CreateTableLike": "name"}
_COMPUTED: Final = "PlanWithUnresolvedIdentifier"  # IDENTIFIER(:table)
_RELATIONS: Final = ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView")
_TARGETS_OF_COMMANDS: Final = ("UnresolvedIdentifier", "UnresolvedTable", "UnresolvedTableOrView", _COMPUTED)
_EMPTYING: Final = ("TruncateTable", "RestoreTableStatement")
_MAKING: Final = ("Create", "Replace")  # beginnings of plans' names; so are those of the next two
_READING: Final = ("Describe", "Show")
_OF_THE_SESSION: Final = ("Cache", "Uncache", "Refresh")
_NO_TABLES: Final = ("Variable", "Function")  # what a plan's name holds whose identifier is something else's
_LOOPS: Final = ("WhileStatement", "RepeatStatement", "LoopStatement", "ForStatement")
_BRANCHES: Final = ("IfElseStatement", "SimpleCaseStatement", "SearchedCaseStatement")
_HOLDING_STATEMENTS: Final = ("CompoundBody", "UnresolvedWith", "Union", *_LOOPS, *_BRANCHES)
_CLUSTER_BY: Final = re.compile(r"\bCLUSTER\s+BY\b", re.IGNORECASE)
_LONGER: Final = len("PARTITIONED BY") - len("CLUSTER BY")  # as which Delta's parser has Spark's read it
_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"


@dataclass(frozen=True)
class Written:
    """What one statement writes."""

    kind: str = ""  # the name of the plan that Spark's parser makes of it; of one after `WITH`, of what follows
    # Changes of rows: table -> how often; in a loop, twice as often.
    rows: Counter[Name] = field(default_factory=Counter)
    other: frozenset[Name] = frozenset()  # made, altered, optimised...: without a transaction
    is_script: bool = False
    makes: bool = False
    only_appends: bool = False
    is_harmless_again: bool = False  # it makes what is missing, without rows, or a view anew
    format: str | None = None  # of the table that it makes, in lower case: of `USING`, else the session's default
    has_location: bool = False  # it makes a table with `LOCATION`

    @property
    def names(self) -> set[Name]:
        return set(self.rows) | self.other


def written_by(spark: SparkSession, text: str, evaluate: Callable[[str], str]) -> Written | None:
    """None for a text that can't be parsed (running it reports why). `evaluate` gives the value of an expression, for
    `IDENTIFIER(:table)`."""
    from pyspark.errors import ParseException

    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except ParseException:
        return None
    return _Reading(spark, text, evaluate).statement(plan)


class _Reading:
    def __init__(self, spark: SparkSession, text: str, evaluate: Callable[[str], str]) -> None:
        self._spark, self._text, self._evaluate = spark, text, evaluate
        self._other = set[Name]()
        self._appends_only = True

    def statement(self, plan: Any) -> Written:
        kind = _kind(plan)
        self._is_script = kind == "CompoundBody"
        rows = self._rows(plan)
        while kind == "UnresolvedWith":
            plan = plan.child()
            kind = _kind(plan)
        appends = bool(rows) and not self._other and self._appends_only
        harmless, makes = _is_harmless_again(kind, plan), kind.startswith(_MAKING)
        made = self._made(plan) if kind in _MAKING_TABLES else (None, False)
        return Written(kind, rows, frozenset(self._other), self._is_script, makes, appends, harmless, *made)

    def _made(self, plan: Any) -> tuple[str | None, bool]:
        provider, default = plan.tableSpec().provider(), self._spark.conf.get("spark.sql.sources.default")
        kind = provider.get() if provider.isDefined() else default
        return str(kind).lower(), bool(plan.tableSpec().location().isDefined())

    def _rows(self, plan: Any) -> Counter[Name]:
        kind = _kind(plan)
        if kind == "SingleStatement":
            return self._rows(plan.parsedPlan())
        if kind.startswith((*_READING, *_OF_THE_SESSION)) or any(word in kind for word in _NO_TABLES):
            return Counter()
        if kind in _EMPTYING and self._is_script:  # it runs again with the script, whose INSERT then is skipped
            self._appends_only = False
            return self._named(plan)
        if kind in _ROWS:
            self._appends_only &= kind == "InsertIntoStatement" and not plan.overwrite()
            return self._named(getattr(plan, _ROWS[kind])())
        if kind in _ROWS_OF_NEW_TABLE:
            self._appends_only = False
            return self._named(plan.name())
        if kind in _OTHER:
            self._other |= set(self._named(getattr(plan, _OTHER[kind])()))
            return Counter()
        if kind in _TARGETS_OF_COMMANDS:
            self._other |= set(self._named(plan))
            return Counter()
        gateway = self._spark.sparkContext._gateway
        if kind not in _HOLDING_STATEMENTS and not is_instance_of(gateway, plan, _COMMAND):
            return Counter()  # a query: it only reads, whatever it names
        rows = Counter[Name]()
        for child in each_of(plan.children()):
            below = self._rows(child)
            rows = rows | below if kind in _BRANCHES else rows + below  # of branches one is taken
        return rows + rows if kind in _LOOPS else rows

    def _named(self, plan: Any) -> Counter[Name]:
        """The name of this relation, once; also under an alias or a time travel."""
        kind = _kind(plan)
        if (name := _name_of(plan)) is not None:
            return Counter([name])
        if kind == _COMPUTED:
            return self._evaluated(plan.identifierExpr())
        if kind == "TimeTravel":
            return self._named(plan.relation())
        return sum((self._named(child) for child in each_of(plan.children())), Counter[Name]())

    def _evaluated(self, expression: Any) -> Counter[Name]:
        origin = expression.origin()
        if origin.startIndex().isEmpty() or origin.stopIndex().isEmpty():
            return Counter()
        name = self._evaluate(self._text[origin.startIndex().get() : origin.stopIndex().get() + 1])
        return Counter([tuple(name_parts(self._spark, name))])


def _is_harmless_again(kind: str, plan: Any) -> bool:
    if kind == "CreateView":
        return bool(plan.replace() or plan.allowExisting())
    return kind == "CreateTable" and bool(plan.ignoreIfExists())


def relations_in(spark: SparkSession, text: str) -> Iterator[tuple[Name, tuple[int, int] | None]]:
    """Every table that a statement names, read or written, with the first and the last character of the name in the text; None
    where the parser does not say. Names of the text's own (of `WITH`) are left out."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    own = set[str]()
    found = dict[tuple[Name, tuple[int, int] | None], None]()
    _collect(plan, own, found)
    others = [one for one in found if not (len(one[0]) == 1 and one[0][0].lower() in own)]
    return ((name, place and _in_text(spark, text, name, place)) for name, place in others)


def _in_text(spark: SparkSession, text: str, name: Name, place: tuple[int, int]) -> tuple[int, int] | None:
    """The place of a name; that of CREATE TABLE with `CLUSTER BY` is one in Delta's own text of the statement."""
    start, end = place
    if not _CLUSTER_BY.search(text) or _is_name(spark, text[start:end], name):
        return place
    start, end = start - _LONGER, end - _LONGER
    return (start, end) if _is_name(spark, text[start:end], name) else None


def _is_name(spark: SparkSession, text: str, name: Name) -> bool:
    from pyspark.errors import ParseException

    try:
        return tuple(name_parts(spark, text)) == name
    except ParseException:
        return False


def _collect(plan: Any, own: set[str], found: dict[tuple[Name, tuple[int, int] | None], None]) -> None:
    kind = _kind(plan)
    if (name := _name_of(plan)) is not None:
        found[name, _place(plan)] = None
    elif kind == "UnresolvedWith":
        for cte in each_of(plan.cteRelations()):
            own.add(str(cte._1()).lower())
            _collect(cte._2(), own, found)
    elif kind in _ROWS:  # a relation that is written is no child
        _collect(getattr(plan, _ROWS[kind])(), own, found)
    for below in (*each_of(plan.children()), *each_of(plan.subqueries())):
        _collect(below, own, found)


def _place(plan: Any) -> tuple[int, int] | None:
    first, last = plan.origin().startIndex(), plan.origin().stopIndex()
    return (int(first.get()), int(last.get()) + 1) if first.isDefined() and last.isDefined() else None


def _name_of(plan: Any) -> Name | None:
    """That a plan is, if it is one."""
    if _kind(plan) == "UnresolvedIdentifier":
        return tuple(each_of(plan.nameParts()))
    return tuple(each_of(plan.multipartIdentifier())) if _kind(plan) in _RELATIONS else None


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def each_of(scala_sequence: Any) -> Iterator[Any]:
    """The elements of a Scala `Seq`."""
    return (scala_sequence.apply(i) for i in range(scala_sequence.length()))
