"""Records keep their promises on every server."""

from blackboard.testing.contracts.records import RecordsContract
from blackboard.testing.contracts.subjects import SubjectsContract


class TestRecords(RecordsContract):
    pass


class TestSubjects(SubjectsContract):
    pass
