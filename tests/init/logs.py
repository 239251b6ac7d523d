"""Write logs as servers and services write them, with a record per minute, and the values that must be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

FIRST = datetime(2026, 1, 1, 6, 0, 0, 123_000, tzinfo=UTC)
COUNT = 30
TIMES = tuple(FIRST + timedelta(minutes=number) for number in range(COUNT))
WORDS = ("a b", 'a "b"', "c:\\d", "ü", "x=1", "#1")
STATUS = (200, 404, 503)


@dataclass(frozen=True, slots=True)
class Log:
    """A log: its lines by number and time, the lines before them, and the values of a column.

    Times are written in seconds if `is_in_seconds`. `time` is the column of the event time if it is not the guess.
    """

    line: Callable[[int, datetime], str]
    column: str
    head: tuple[str, ...] = ()
    name: str = "app.log"
    is_in_seconds: bool = False
    values: tuple[Any, ...] = STATUS
    time: str | None = None

    def text(self) -> str:
        """Return the whole text of the file."""
        lines = [*self.head, *(self.line(number, at) for number, at in enumerate(TIMES))]
        return "\n".join(lines) + "\n"

    def expected(self) -> list[tuple[int, str]]:
        """Return the event time in epoch milliseconds and the value of the column by record."""
        return sorted(
            (
                round((at.replace(microsecond=0) if self.is_in_seconds else at).timestamp() * 1_000),
                str(self.values[number % len(self.values)]),
            )
            for number, at in enumerate(TIMES)
        )


def iso(at: datetime, timespec: str = "microseconds") -> str:
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")


def load_balancer(number: int, at: datetime) -> str:
    created = iso(at - timedelta(milliseconds=5))
    target_status = "-" if number % 3 == 2 else 200
    return (
        f"https {iso(at)} app/my-lb/50dc6c495c0c9188 10.0.0.{number}:2817 10.0.1.1:80 0.000 0.001 0.000"
        f" {STATUS[number % 3]} {target_status} 34 {366 + number}"
        ' "GET https://www.example.com:443/?q=a%20b HTTP/1.1"'
        ' "Mozilla/5.0 (X11; Linux) \\x22" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2'
        " arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067"
        ' "Root=1-58337262-36d228ad5d99923122bbe354" "www.example.com" "-" 1'
        f' {created} "authenticate,forward" "-" "-" "10.0.1.1:80" "200" "-" "-" TID_1234abcd5678ef90'
    )


def classic(number: int, at: datetime) -> str:
    return (
        f"{iso(at)} my-lb 10.0.0.{number}:2817 10.0.1.1:80 0.000073 0.001048 0.000057"
        f' {STATUS[number % 3]} 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -'
    )


def cloudfront(number: int, at: datetime) -> str:
    cells = (
        *(f"{at:%Y-%m-%d}", f"{at:%H:%M:%S}", "SFO53-P7", 392 + number, f"10.0.0.{number}", "GET"),
        *("d111111abcdef8.cloudfront.net", "/index.html", STATUS[number % 3], "-", "Mozilla/5.0%20(Windows)", "-"),
    )
    return "\t".join(map(str, cells))


CLOUDFRONT_FIELDS = (
    "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer)"
    " cs(User-Agent) cs-uri-query"
)


def bucket(number: int, at: datetime) -> str:
    return (
        f"{'79a5' * 16} my-bucket [{at:%d/%b/%Y:%H:%M:%S} +0000] 10.0.0.{number} {'79a5' * 16} 3E57427F3EXAMPLE"
        f' REST.GET.OBJECT a%20b.txt "GET /my-bucket/a%20b.txt?v=1 HTTP/1.1" {STATUS[number % 3]} - {113 + number}'
        ' - 7 - "-" "S3Console/0.4" - Ynn1/x= SigV4 ECDHE-RSA-AES128-GCM-SHA256 AuthHeader'
        " my-bucket.s3.us-west-1.amazonaws.com TLSv1.2 - Yes"
    )


def nginx_error(number: int, at: datetime) -> str:
    level = ("error", "warn", "crit")[number % 3]
    return f'{at:%Y/%m/%d %H:%M:%S} [{level}] 123#{number}: *{number} open() "/a b" failed (2: No such file)'


def apache_error(number: int, at: datetime) -> str:
    level = ("core:error", "mpm_event:notice", "warn")[number % 3]
    return f"[{at:%a %b %d %H:%M:%S.%f %Y}] [{level}] [pid 35708:tid {number}] AH00094: Command line: 'httpd'"


def iis(number: int, at: datetime) -> str:
    return (
        f"{at:%Y-%m-%d} {at:%H:%M:%S} 10.0.0.1 GET /default.htm - 80 - 10.0.0.{number}"
        f" Mozilla/5.0+(Windows) - {STATUS[number % 3]} 0 0 {number}"
    )


def flow(number: int, at: datetime) -> str:
    seconds, action = int(at.timestamp()), ("ACCEPT", "REJECT")[number % 2]
    return (
        f"2 123456789012 eni-0a1b2c3d 10.0.0.{number} 10.0.1.1 20641 22 6 {20 + number} 4249 {seconds}"
        f" {seconds + 55} {action} OK"
    )


IIS_FIELDS = (
    "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent)"
    " cs(Referer) sc-status sc-substatus sc-win32-status time-taken"
)
FLOW_HEADER = (
    "version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end action"
    " log-status"
)


def zeek(number: int, at: datetime) -> str:
    cells = (
        f"{at.timestamp():.6f}",
        f"C{number}",
        "10.0.0.1",
        3_000 + number,
        "10.0.1.1",
        53,
        "-",
        STATUS[number % 3],
    )
    return "\t".join(map(str, cells))


ZEEK_HEAD = (
    "#separator \\x09",
    "#set_separator\t,",
    "#empty_field\t(empty)",
    "#unset_field\t-",
    "#path\tconn",
    "#open\t2026-01-01-06-00-00",
    "#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tservice\tcode",
    "#types\ttime\tstring\taddr\tport\taddr\tport\tstring\tcount",
)


def word(number: int) -> str:
    return WORDS[number % len(WORDS)]


def syslog(number: int, at: datetime) -> str:
    app = ("sshd", "cron")[number % 2]
    return f'<{34 + number}>1 {iso(at)} web-{number % 3} {app} - ID47 [a@1 b="{number}"] {word(number)}'


def rsyslog(number: int, at: datetime) -> str:
    return f"{iso(at).replace('Z', '+00:00')} web-1 {('sshd', 'cron')[number % 2]}[{number}]: {word(number)}: x"


def logfmt(number: int, at: datetime) -> str:
    text = json.dumps(f"level=no {word(number)}", ensure_ascii=False)
    level, status = ("info", "warn")[number % 2], STATUS[number % 3]
    return f"ts={iso(at, 'milliseconds')} msg={text} level={level} status={status} took=1.5ms"


def access(number: int, at: datetime) -> str:
    request = '"GET /?q=\\"x\\" HTTP/1.1"'
    return f"10.0.0.{number} - ann [{at:%d/%b/%Y:%H:%M:%S} +0000] {request} {STATUS[number % 3]} {number}"


LOGS = {
    "common access log": Log(access, "status", name="access.log", is_in_seconds=True),
    "load balancer": Log(load_balancer, "elb_status_code", time="time"),
    "classic load balancer": Log(classic, "elb_status_code"),
    "CloudFront": Log(
        cloudfront,
        "sc_status",
        ("#Version: 1.0", CLOUDFRONT_FIELDS),
        "E2K.2026-01-01-06.99ca47ca",
        is_in_seconds=True,
    ),
    "IIS": Log(
        iis,
        "sc_status",
        (
            "#Software: Microsoft Internet Information Services 10.0",
            "#Version: 1.0",
            "#Date: 2026-01-01 06:00:00",
            IIS_FIELDS,
        ),
        "u_ex260101.log",
        is_in_seconds=True,
    ),
    "S3": Log(bucket, "status", is_in_seconds=True),
    "errors of nginx": Log(nginx_error, "level", is_in_seconds=True, values=("error", "warn", "crit")),
    "errors of Apache": Log(apache_error, "level", values=("error", "notice", "warn")),
    "VPC flow": Log(flow, "action", is_in_seconds=True, values=("ACCEPT", "REJECT")),
    "VPC flow with a header": Log(flow, "action", (FLOW_HEADER,), is_in_seconds=True, values=("ACCEPT", "REJECT")),
    "Zeek": Log(zeek, "code", ZEEK_HEAD, "conn.log"),
    "syslog": Log(syslog, "app", values=("sshd", "cron")),
    "syslog of rsyslog": Log(rsyslog, "app", values=("sshd", "cron"), name="syslog"),
    "logfmt": Log(logfmt, "level", values=("info", "warn")),
}
