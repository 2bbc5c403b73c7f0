"""Sends events to tributary, each once: batches on disk, keyed retries. Python 3.8 or later, no packages.

`send` returns when the event is in the spool. It survives a kill of the process: the next Sender on the folder sends it.
A power cut may lose the last second. Thread-safe."""
import fcntl, json, os, random, re, threading, time, traceback, uuid
import urllib.error, urllib.parse, urllib.request

MAX_EVENTS, MAX_BYTES = 20, 10_240
LINGER, TIMEOUT, FIRST_WAIT, LONGEST_WAIT, KEY_SAFE = 1.0, 10.0, 0.5, 30.0, 20 * 3600  # Seconds. The service knows a key for 24 hours.


class Sender:
    def __init__(self, url, app, token, spool, on_problem=None):
        """Opens a spool, which one process has. `on_problem` gets a text for each rejected event and failed request."""
        self._url, self._app, self._token, self._spool = url.rstrip("/"), app, token, spool
        self._on_problem, self._wait = on_problem or (lambda text: None), FIRST_WAIT
        os.makedirs(spool, mode=0o700, exist_ok=True)
        self._lock_file = open(os.path.join(spool, "lock"), "w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: another process has the spool.
        self._changed, self._open, self._closing, self._last = threading.Condition(), {}, False, 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, method, event):
        """Accepts an event of a method such as 'customEvent'. ValueError: it is larger than a request."""
        event = {"eventTimestamp": int(time.time()), **event}
        line = json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        if len(line) + 1 > MAX_BYTES:
            raise ValueError("an event has at most %d bytes" % (MAX_BYTES - 2))
        with self._changed:
            if self._closing:
                raise ValueError("the sender is closed")
            batch = self._open.get(method)
            if batch and (batch["events"] == MAX_EVENTS or batch["bytes"] + len(line) > MAX_BYTES):
                self._seal(method)
                batch = None
            if batch is None:
                path = os.path.join(self._spool, method + ".open")
                if os.path.exists(path):
                    self._seal(method)
                batch = self._open[method] = {"file": open(path, "xb", buffering=0), "events": 0, "bytes": 1, "since": time.monotonic()}
            try:
                if batch["file"].write(line) != len(line):
                    raise OSError("the disk of the spool is full")
            except OSError:
                self._seal(method)  # No line may follow a torn one.
                raise
            batch["events"] += 1
            batch["bytes"] += len(line)
            if batch["events"] in (1, MAX_EVENTS):
                self._changed.notify_all()

    def flush(self, timeout=60.0):
        """Waits until every accepted event is stored. Returns False at the timeout: they stay in the spool."""
        with self._changed:
            for method in list(self._open):
                self._seal(method)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._batches() and not self._left(), timeout)

    def close(self, timeout=60.0):
        """Flushes, and ends. Returns as `flush`."""
        is_done = self.flush(timeout)
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(TIMEOUT + 1)
        self._lock_file.close()
        return is_done

    def _seal(self, method):
        """Gives the open events of a method a key: the name of their file. A line that a kill or a full disk has cut was not accepted."""
        batch, source = self._open.pop(method, None), os.path.join(self._spool, method + ".open")
        if batch:
            os.fsync(batch["file"].fileno())
            batch["file"].close()
        self._last = max(self._last + 1, int(time.time() * 1000))
        os.rename(source, os.path.join(self._spool, "%013d-%s.%s.batch" % (self._last, uuid.uuid4().hex, method)))

    def _batches(self):
        return sorted(name for name in os.listdir(self._spool) if name.endswith(".batch"))

    def _left(self):
        """Lists the methods whose open events a killed process or a failed seal has left."""
        return [name[:-5] for name in os.listdir(self._spool) if name.endswith(".open") and name[:-5] not in self._open]

    def _run(self):
        while not self._closing:
            try:
                after = self._send_batches()
            except Exception as error:  # Such as a full disk, a cut response, or an error of on_problem.
                self._report("%s: %s" % (type(error).__name__, error))
                after = 0.0
            if after is not None:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, max(after, self._wait * random.uniform(0.5, 1)))
                self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _send_batches(self):
        """Seals what is due, and sends the batches until one is not settled. Returns as `_post`."""
        with self._changed:
            old = time.monotonic() - LINGER
            due = [m for m, b in self._open.items() if b["events"] == MAX_EVENTS or b["since"] <= old]
            for method in due + self._left():
                self._seal(method)
            batches = self._batches()
            if not batches and not self._closing:
                self._changed.wait(LINGER / 4 if self._open else None)
        for name in batches:
            after = self._post(name)
            if after is not None or self._closing:
                return after
            self._wait = FIRST_WAIT
        return None

    def _report(self, text):
        try:
            self._on_problem(text)
        except Exception:
            traceback.print_exc()

    def _post(self, name):
        """Sends a batch. Returns None when it is settled, else the least seconds until the next try."""
        key, method, _ = name.split(".")
        with open(os.path.join(self._spool, name), "rb") as file:
            lines = file.read().split(b"\n")[:-1]
        if not lines or (time.time() - int(key[:13]) / 1000 > KEY_SAFE and self._is_known(key)):
            return self._remove(name)
        body, headers = b"[" + b",".join(lines) + b"]", {"Idempotency-Key": key, "Prefer": "errors=all"}
        status, after, text = self._call("POST", "/v1/%sBatch/" % method, {}, body, headers)
        if status == 200 and '"message"' in text:
            return self._remove(name)
        self._report("%s %d: %s" % (method, status, text[:500]))
        if '"error"' not in text or not 400 <= status < 500 or status in (401, 403, 408, 429):
            return LONGEST_WAIT if 200 <= status < 500 and status not in (408, 429) else after
        every = set(range(len(lines)))  # Of no other status can a part be stored.
        bad = {int(at) for at in re.findall(r'"pointer":"/(\d+)', text)} if status == 400 and len(lines) > 1 else every
        rest = [(index, line) for index, line in enumerate(lines) if index not in bad]
        # New keys that depend on the old one: a repeat after a kill has the same.
        groups = [(key + "-r", [line for _, line in rest])] if bad else [("%s-%02d" % (key, i), [line]) for i, line in rest]
        for new_key, some in groups if rest else []:
            with open(os.path.join(self._spool, "next"), "wb") as file:
                file.write(b"".join(line + b"\n" for line in some))
                os.fsync(file.fileno())
            os.rename(file.name, os.path.join(self._spool, "%s.%s.batch" % (new_key, method)))
        with open(os.path.join(self._spool, "rejected.ndjson"), "ab") as file:
            file.write(b"".join(line + b"\n" for index, line in enumerate(lines) if index in bad))
        return self._remove(name)

    def _is_known(self, key):
        status, _, text = self._call("GET", "/v1/event", {"key": key}, None, {})
        if status != 200:
            raise ValueError("the lookup of an old batch has status %d" % status)
        return json.loads(text)["state"] != "never_seen"

    def _remove(self, name):
        with self._changed:
            os.remove(os.path.join(self._spool, name))
            self._changed.notify_all()

    def _call(self, verb, path, query, body, headers):
        url = "%s%s?%s" % (self._url, path, urllib.parse.urlencode({"idApp": self._app, **query}))
        request = urllib.request.Request(url, body, {"Authorization": self._token, **headers}, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return answer.status, 0.0, answer.read().decode()
        except urllib.error.HTTPError as error:
            after = error.headers.get("Retry-After", "")
            return error.code, float(after) if after.isdigit() else 0.0, error.read().decode(errors="replace")
