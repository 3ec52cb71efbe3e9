"""Jobs: commands that run in the background, for longer than a connection is kept."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from differently_core.contract import JobOutput
from differently_core.errors import NotFound
from differently_core.model.exec import (
    JOB_ID_PATTERN,
    JOB_OUTPUT_BYTES_MAX,
    Encoding,
    ExecRequest,
    Job,
)
from differently_core.model.record import Wire
from differently_core.operations import execution

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from ..streams import Base64, Utf8
from .commands import RUNNING_ERRORS

OUTPUT_BYTES_DEFAULT = 65_536
OUTPUT_BYTES_MIN = 16
"""More than the longest character, so that every read of text gets somewhere."""
_JOB_ID = re.compile(JOB_ID_PATTERN)


class StartJob(ExecRequest):
    """Like a command, for up to 8,100 seconds."""

    id: Annotated[str, Field(pattern=JOB_ID_PATTERN)] | None = None
    """Chosen by the caller to make a repeat safe: the same id with the same command names the first job."""

    def request(self) -> ExecRequest:
        return ExecRequest.model_validate(self.model_dump(exclude={"id"}))


class JobOutputQuery(Wire):
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0
    """The byte to read from: 0, or `next` of the read before."""
    limit: Annotated[int, Field(ge=OUTPUT_BYTES_MIN, le=JOB_OUTPUT_BYTES_MAX)] = OUTPUT_BYTES_DEFAULT
    encoding: Encoding = Encoding.UTF8


class JobOutputView(Wire):
    data: str
    next: int
    """The offset to read from next. A character that is not whole yet is left for that read."""
    ended: bool
    """True when nothing more can come."""


def start_job(call: Call[StartJob, NoQuery]) -> Answer:
    job = execution.start_job(call.core, call.caller, call.params["id"], call.body.request(), call.body.id)
    location = f"/v1/sandboxes/{call.params['id']}/jobs/{job.id}"
    return Answer(
        202, job.model_dump_json(by_alias=True, exclude_none=True), {"Content-Type": JSON, "Location": location}
    )


def get_job(call: Call[NoBody, NoQuery]) -> Job:
    return execution.job_status(call.core, call.caller, call.params["id"], _job(call.params["job"]))


def get_job_output(call: Call[NoBody, JobOutputQuery]) -> JobOutputView:
    asked = call.query
    output = execution.job_output(
        call.core, call.caller, call.params["id"], _job(call.params["job"]), asked.stream, asked.offset, asked.limit
    )
    return view_of(output, asked.encoding)


def view_of(output: JobOutput, encoding: Encoding) -> JobOutputView:
    if encoding is Encoding.BASE64:
        return JobOutputView(data=Base64().text(output.data), next=output.next, ended=output.ended)
    decoder = Utf8()
    text = decoder.text(output.data, final=output.ended)
    return JobOutputView(data=text, next=output.next - decoder.held_back, ended=output.ended)


def stop_job(call: Call[NoBody, NoQuery]) -> Job:
    return execution.stop_job(call.core, call.caller, call.params["id"], _job(call.params["job"]))


def _job(text: str) -> str:
    if _JOB_ID.fullmatch(text) is None:
        raise NotFound(f"There is no job {text[:64]!r} in this sandbox.")
    return text


ROUTES = (
    Route(
        Method.POST, "/v1/sandboxes/{id}/jobs", Group.DATA, Access.TENANT, start_job,
        "Start a job", StartJob, NoQuery, Job, 202, errors=RUNNING_ERRORS,
        description="The command runs in the background for up to 8,100 seconds; read its state and output with the "
        "routes below.",
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}/jobs/{job}", Group.DATA, Access.TENANT, get_job,
        "Read a job's state", NoBody, NoQuery, Job, errors=RUNNING_ERRORS,
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}/jobs/{job}/output", Group.DATA, Access.TENANT, get_job_output,
        "Read a job's output", NoBody, JobOutputQuery, JobOutputView, errors=RUNNING_ERRORS,
        description="From a byte offset on; what was read can be read again.",
    ),
    Route(
        Method.DELETE, "/v1/sandboxes/{id}/jobs/{job}", Group.DATA, Access.TENANT, stop_job,
        "Stop a job", NoBody, NoQuery, Job, errors=RUNNING_ERRORS,
        description="Ends its process group. A job that has ended stays as it ended.",
    ),
)  # fmt: skip
