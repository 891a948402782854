"""Records: what a job asked for, ran with and measured, as versioned JSON."""

from dspark_factory.results.builder import RecordBuilder
from dspark_factory.results.record import SCHEMA_VERSION, Record, Status
from dspark_factory.results.store import RECORD_NAME, read_record, record_text, write_record

__all__ = [
    "RECORD_NAME",
    "SCHEMA_VERSION",
    "Record",
    "RecordBuilder",
    "Status",
    "read_record",
    "record_text",
    "write_record",
]
