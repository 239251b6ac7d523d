"""Addresses of every route of the pages: of ordinary data, and of data that is full of markup.

A test compares the keys with the routes of the application, so a new route needs an address here.
"""

from __future__ import annotations

from urllib.parse import urlencode

from tests.browser.seed import HOSTILE, WAITING
from tests.browser.visits import TAMPERED, WINDOW

_FLIGHTS = {"dag_id": "backfill_flights"}
_WAITS = {"dag_id": "reprocess_flights", "run_id": WAITING[0]}
_PREVIEW = {"dag_id": "reprocess_flights", "run_id": "manual__dry"}
_VISITS = {"dag_id": "backfill_visits"}
_ORDERS = {"dag_id": "backfill_orders"}
_HOSTILE_RUN = {"dag_id": "reprocess_orders", "run_id": HOSTILE}

READ = {
    "/overview": ["overview", "overview?text=flights&status=stale", "overview?format=csv"],
    "/runs": [
        "runs",
        f"runs?{urlencode(_FLIGHTS | {'status': 'published', 'since': '2024-02-08'})}",
        f"runs?{urlencode(_FLIGHTS | {'format': 'csv'})}",
    ],
    "/dataset": [
        f"dataset?{urlencode(_FLIGHTS)}",
        f"dataset?{urlencode(_FLIGHTS | {'since': '2024-02-01', 'until': '2024-03-01'})}",
        f"dataset?{urlencode(_FLIGHTS | {'format': 'csv'})}",
    ],
    "/day": [f"day?{urlencode(_FLIGHTS | {'day': '2024-02-08'})}"],
    "/explain": [
        f"explain?{urlencode(_VISITS | {'window': WINDOW})}",
        f"explain?{urlencode(_VISITS | {'window': WINDOW, 'key': 'page=home'})}",
        f"explain?{urlencode(_VISITS | {'window': TAMPERED, 'key': 'page=home'})}",
    ],
    "/watermark": [f"watermark?{urlencode(_FLIGHTS | {'delay': '45m'})}"],
    "/checks": [f"checks?{urlencode(_FLIGHTS)}", f"checks?{urlencode(_FLIGHTS | {'format': 'csv'})}"],
    "/reprocess": [f"reprocess?{urlencode(_FLIGHTS | {'since': '2024-02-08'})}"],
    "/run": [f"run?{urlencode(_WAITS)}", f"run?{urlencode(_PREVIEW)}"],
    "/approval": [f"approval?{urlencode(_WAITS)}"],
    "/report": [f"report?{urlencode(_FLIGHTS | {'run_id': 'backfill__2016'})}"],
}
"""The addresses of each route for GET."""
SENT: dict[str, tuple[str, dict[str, str]]] = {
    "/reprocess": (
        f"reprocess?{urlencode(_FLIGHTS)}",
        {"since": "2024-02-08", "until": "2024-02-09", "reason": "no"},
    ),
    "/cancel": (f"cancel?{urlencode(_WAITS)}", {}),
    "/approval": (f"approval?{urlencode(_WAITS)}", {"answer": "Approve"}),
    "/dismiss": (f"dismiss?{urlencode(_WAITS)}", {"reason": "no"}),
}
"""The address and the form of each route for POST."""
HOSTILE_READ = {
    "/overview": ["overview", f"overview?{urlencode({'text': HOSTILE})}", "overview?format=csv"],
    "/runs": [
        "runs",
        f"runs?{urlencode(_ORDERS)}",
        f"runs?{urlencode(_ORDERS | {'reason': HOSTILE, 'since': HOSTILE})}",
        f"runs?{urlencode(_ORDERS | {'format': 'csv'})}",
    ],
    "/dataset": [f"dataset?{urlencode(_ORDERS)}", f"dataset?{urlencode(_ORDERS | {'format': 'csv'})}"],
    "/day": [f"day?{urlencode(_ORDERS | {'day': '2016-01-01'})}"],
    "/explain": [
        f"explain?{urlencode(_VISITS | {'window': WINDOW})}",
        f"explain?{urlencode(_VISITS | {'window': WINDOW, 'key': 'page=' + HOSTILE})}",
        f"explain?{urlencode(_VISITS | {'window': HOSTILE, 'key': HOSTILE})}",
    ],
    "/watermark": [f"watermark?{urlencode(_ORDERS | {'delay': HOSTILE})}"],
    "/checks": [f"checks?{urlencode(_ORDERS)}", f"checks?{urlencode(_ORDERS | {'format': 'csv'})}"],
    "/reprocess": [
        f"reprocess?{urlencode(_ORDERS | {'since': '2016-01-01', 'reason': HOSTILE, 'chunk': HOSTILE})}"
    ],
    "/run": [
        f"run?{urlencode(_HOSTILE_RUN)}",
        f"run?{urlencode(_PREVIEW)}",
        f"run?{urlencode(_HOSTILE_RUN | {'run_id': HOSTILE + '2'})}",
    ],
    "/approval": [f"approval?{urlencode(_HOSTILE_RUN)}"],
    "/report": [f"report?{urlencode(_HOSTILE_RUN | {'run_id': HOSTILE + '2'})}"],
}
"""The addresses of each route whose data, or whose values in the address, are hostile."""


def shown_pages() -> list[str]:
    """Return the addresses of all pages that a person looks at, without the files and the stored report."""
    all_addresses = [address for addresses in READ.values() for address in addresses]
    return [
        address for address in all_addresses if "format=csv" not in address and not address.startswith("report")
    ]
