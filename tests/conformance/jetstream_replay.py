# ruff: noqa
# mypy: ignore-errors
# fmt: off
"""Replay recorded JetStream exchanges against a server and report what differs.

  compare.py HOST PORT FILE...  [--http PORT]      a running server; its streams are DELETED between scenarios
  compare.py --start CMD FILE...                   a fresh server for each scenario; {port} {http} {dir} filled in, e.g.
             --start 'nats-server -a 127.0.0.1 -p {port} -m {http} -js -sd {dir}'
  options: -k TEXT (only names or topics containing it)  -j N (servers at once, with --start)  -v (whole difference)
           --slow F (stretch the patience by F)  --list

A scenario is a list of steps, each with a connection name; a connection opens (and its INFO is read) when first named.
  send      bytes as a latin-1 string. <reply:N> stands for the reply subject of the N-th delivery carrying one in the
            scenario, <consumer:N> for the N-th consumer name the server made up, <time:X> for the time (30 characters)
            that the step with "mark": X began. Lengths in PUB lines hold for the expanded text.
  receive   what came on that connection in that step; others: {conn: [...]} what came on other connections.
  wait      watch for that many ms whatever comes; otherwise the step ends when what is expected came and a little after.
  close     close the connection.     http   GET on the monitoring port; receive is [status, shape].
Frames: "PONG", "-ERR '...'" or "<closed>" as strings, messages as {"subject","sid","reply","headers","text"|"json"}: only
what is there. Order is compared within one subscription (sid) of one connection, not between subscriptions.
Varying values are replaced: RFC 3339 times other than the zero time, the ns of ack subjects, ids, sizes in bytes.
Not compared: cluster, `_nats.*` metadata, the API level and totals, key order, the text of JSON syntax errors (10025)."""
import json, os, re, select, shlex, shutil, socket, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
ZERO = "0001-01-01T00:00:00Z"
ACK = re.compile(r"(\$JS\.ACK\.[^ ]*?\.\d+\.\d+\.\d+\.)(\d{16,20})(\.\d+)")
DROP = {"cluster", "inflight"}
SIZES = {"bytes", "memory", "storage", "reserved_memory", "reserved_storage", "max_memory", "max_storage", "limit_bytes"}
FIXED = {"id": "<id>", "client": "<client>", "server": "<id>", "server_id": "<id>", "server_name": "<id>", "level": "<n>",
         "store_dir": "<dir>", "leader": "<id>", "now": "<time>", "sync_interval": "<ns>"}
SLOW = 1.0


class Conn:
    def __init__(self, host, port):
        self.s = socket.create_connection((host, port), timeout=10)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""; self.open = True; self.frames = []
        while b"\r\n" not in self.buf: self.buf += self.s.recv(65536)
        self.buf = self.buf.split(b"\r\n", 1)[1]
    def read(self):
        try: d = self.s.recv(1 << 18)
        except OSError: d = b""
        if not d:
            self.open = False; self.frames.append("<closed>"); return
        self.buf += d
        while b"\r\n" in self.buf:
            line, rest = self.buf.split(b"\r\n", 1)
            w = line.split(b" ")
            if w[0] in (b"MSG", b"HMSG"):
                h = w[0] == b"HMSG"; n = int(w[-1]); hl = int(w[-2]) if h else 0
                if len(rest) < n + 2: return
                body, self.buf = rest[:n], rest[n + 2:]
                f = {"subject": w[1].decode("latin-1"), "sid": w[2].decode("latin-1")}
                if len(w) > (5 if h else 4): f["reply"] = w[3].decode("latin-1")
                if h: f["headers"] = body[:hl].decode("latin-1")
                t = body[hl:].decode("latin-1")
                if t[:1] in "{[" and t: 
                    try: f["json"] = json.loads(body[hl:])
                    except ValueError: f["text"] = t
                elif t: f["text"] = t
                self.frames.append(f); continue
            self.buf = rest
            if line == b"PING": self.s.sendall(b"PONG\r\n")
            elif not line.startswith(b"INFO "): self.frames.append(line.decode("latin-1"))


def norm(v, key=""):
    if isinstance(v, dict):
        out = {}
        for k, x in v.items():
            if k in DROP or k.startswith("_nats."): continue
            if k == "metadata" and isinstance(x, dict) and not any(not y.startswith("_nats.") for y in x): continue
            if k == "api" and isinstance(x, dict) and "total" in x: out[k] = {y: "<n>" for y in x if y not in DROP}; continue
            if k == "description" and v.get("err_code") == 10025: out[k] = "<text>"; continue
            out[k] = FIXED[k] if k in FIXED and not (k == "id" and not isinstance(x, str)) else norm(x, k)
        return out
    if isinstance(v, list): return [norm(x, key) for x in v]
    if isinstance(v, str):
        if TIME.match(v) and v != ZERO: return "<time>"
        return ACK.sub(r"\1<ns>\3", v)
    if key in SIZES and isinstance(v, (int, float)) and v > 0: return "<bytes>"
    return v


def shape(v, key=""):
    """Keys and types; values only where monitoring tools read them."""
    if key == "stream_detail" and isinstance(v, list):  # in no order
        v = norm(v)
        for x in v:
            if isinstance(x, dict) and isinstance(x.get("consumer_detail"), list): x["consumer_detail"].sort(key=lambda c: str(c.get("name")))
        return sorted(v, key=lambda x: str(x.get("name")))
    if isinstance(v, dict): return {k: {y: "<number>" for y in x if y not in DROP} if k == "api" else shape(x, k) for k, x in v.items() if k not in DROP}
    if isinstance(v, list): return [shape(x, key) for x in v]
    if key in ("name", "status", "streams", "consumers", "messages", "total", "error", "error_type") and not isinstance(v, float): return v
    return "<bool>" if isinstance(v, bool) else "<number>" if isinstance(v, (int, float)) else "<string>" if isinstance(v, str) else "<null>"


def sid(f): return int(f["sid"]) if isinstance(f, dict) and f["sid"].isdigit() else -1


class Run:
    """One scenario on one server."""
    def __init__(self, host, port, http=None):
        self.host, self.port, self.http = host, port, http
        self.conns = {}; self.replies = []; self.made = []; self.marks = {}; self.sent = ""
    def conn(self, name):
        if name not in self.conns: self.conns[name] = Conn(self.host, self.port)
        return self.conns[name]
    def expand(self, s):
        s = re.sub(r"<reply:(\d+)>", lambda m: self.replies[int(m[1]) - 1], s)
        s = re.sub(r"<consumer:(\d+)>", lambda m: self.made[int(m[1]) - 1], s)
        return re.sub(r"<time:(\w+)>", lambda m: self.marks[m[1]], s)
    def pump(self, seconds):
        cs = [c for c in self.conns.values() if c.open]
        if not cs: time.sleep(seconds); return
        r, _, _ = select.select([c.s for c in cs], [], [], max(0, seconds))
        for c in cs:
            if c.s in r: c.read()
    def step(self, st, expected=None, settle=0.3, patience=3.0):
        """Does a step; gives {conn: frames}. expected: {conn: number of frames}, None when recording."""
        if "http" in st: return {st["conn"]: self.get(st)}
        if "mark" in st:
            time.sleep(0.02); t = time.time_ns()
            self.marks[st["mark"]] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t // 10**9)) + ".%09dZ" % (t % 10**9)
            time.sleep(0.02)
        c = self.conn(st["conn"])
        for x in self.conns.values(): x.frames = []
        if "send" in st:
            raw = self.expand(st["send"]); self.sent += raw
            try: c.s.sendall(raw.encode("latin-1"))
            except OSError: pass
        if st.get("close"): c.open = False; c.s.close()
        t0 = time.monotonic(); hold = st.get("wait", 0) / 1000
        while time.monotonic() - t0 < hold: self.pump(hold - (time.monotonic() - t0))
        if expected is None:
            if not hold: 
                quiet = time.monotonic() + settle
                while time.monotonic() < quiet: self.pump(quiet - time.monotonic())
        else:
            end = time.monotonic() + patience * SLOW
            while any(len(self.conns[k].frames) < n for k, n in expected.items() if k in self.conns) and time.monotonic() < end: self.pump(0.05)
            quiet = time.monotonic() + 0.04 * SLOW
            while not hold and time.monotonic() < quiet: self.pump(quiet - time.monotonic())
        out = {}
        for k in sorted(self.conns):
            fr = sorted(self.conns[k].frames, key=sid)
            for f in fr:
                if not isinstance(f, dict): continue
                if f.get("reply", "").startswith("$JS.ACK."): self.replies.append(f["reply"])
                j = f.get("json")
                if isinstance(j, dict) and str(j.get("type", "")).endswith("consumer_create_response") and j.get("name"):
                    if j["name"] not in self.made and not re.search(r"\b%s\b" % re.escape(j["name"]), self.sent): self.made.append(j["name"])
            if fr: out[k] = fr
        return out
    def get(self, st):
        try:
            with urllib.request.urlopen("http://%s:%d%s" % (self.host, self.http, st["http"]), timeout=5) as r: code, body = r.status, r.read()
        except urllib.error.HTTPError as e: code, body = e.code, e.read()
        try: body = json.loads(body)
        except ValueError: body = body.decode("latin-1")
        return [code, body]
    def clean(self, out):
        """Normalised: made up names, times, ids."""
        def walk(v):
            if isinstance(v, dict): return {k: walk(x) for k, x in v.items()}
            if isinstance(v, list): return [walk(x) for x in v]
            if isinstance(v, str):
                for i, n in enumerate(self.made): v = re.sub(r"(?<![A-Za-z0-9])%s(?![A-Za-z0-9])" % re.escape(n), "<consumer:%d>" % (i + 1), v)
                return ACK.sub(r"\1<ns>\3", v)
            return v
        res = {}
        for k, fr in out.items():
            res[k] = []
            for f in fr:
                if isinstance(f, dict) and "sid" in f:
                    g = {x: walk(y) for x, y in f.items() if x != "json"}
                    if "json" in f: g["json"] = walk(norm(f["json"]))
                    res[k].append(g)
                else: res[k].append(walk(shape(f)) if isinstance(f, (dict, list)) else f)
        return res
    def end(self):
        for c in self.conns.values():
            try: c.s.close()
            except OSError: pass
    def wipe(self):
        c = Conn(self.host, self.port); c.s.settimeout(5)
        def ask(subject, n):
            c.frames = []
            c.s.sendall(("PUB $JS.API.%s _W.%d 0\r\n\r\n" % (subject, n)).encode())
            end = time.monotonic() + 5
            while not any(isinstance(f, dict) for f in c.frames) and time.monotonic() < end and c.open: c.read()
            return next((f for f in c.frames if isinstance(f, dict)), {}).get("json", {})
        c.s.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _W.* 1\r\n')
        for i, s in enumerate(ask("STREAM.NAMES", 0).get("streams") or []): ask("STREAM.DELETE." + s, i + 1)
        c.s.close()


def unpack(st):
    want = dict(st.get("others", {}))
    if st.get("receive"): want[st["conn"]] = st["receive"]
    return want


def first_diff(want, got, path=""):
    if type(want) != type(got) and not (isinstance(want, (int, float)) and isinstance(got, (int, float))):
        return "%s: want %s, got %s" % (path, short(want), short(got))
    if isinstance(want, dict):
        for k in want:
            if k not in got: return "%s.%s: missing, want %s" % (path, k, short(want[k]))
        for k in want:
            d = first_diff(want[k], got[k], path + "." + str(k))
            if d: return d
        for k in got:
            if k not in want: return "%s.%s: not expected, got %s" % (path, k, short(got[k]))
        return None
    if isinstance(want, list):
        for i, (a, b) in enumerate(zip(want, got)):
            d = first_diff(a, b, "%s[%d]" % (path, i))
            if d: return d
        if len(want) > len(got): return "%s: %d frames or items, want %d; the first missing is %s" % (path, len(got), len(want), short(want[len(got)]))
        if len(want) < len(got): return "%s: %d frames or items, want %d; the first extra is %s" % (path, len(got), len(want), short(got[len(want)]))
        return None
    return None if want == got else "%s: want %s, got %s" % (path, short(want), short(got))


WIDTH = 300
def short(v):
    t = json.dumps(v); return t if len(t) <= WIDTH else t[:WIDTH] + "..."


def replay(sc, host, port, http=None):
    """None when the server did as recorded, else the first difference."""
    run = Run(host, port, http); got = []
    try:
        if http is None and any("http" in s for s in sc["steps"]): return "SKIP no --http port given"
        for i, st in enumerate(sc["steps"]):
            want = unpack(st)
            try: out = run.step(st, {k: len(v) for k, v in want.items()})
            except (OSError, IndexError, KeyError, TypeError) as e: return "step %d %s: %s: %s" % (i + 1, short(st.get("send", ""))[:120], type(e).__name__, e)
            d = first_diff(want, run.clean(out))
            if d: return "step %d %s\n      %s" % (i + 1, json.dumps(st.get("send") or st.get("http") or "(wait)")[:WIDTH], d)
    finally: run.end()
    return None


def free_port():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); p = s.getsockname()[1]; s.close(); return p


class Server:
    def __init__(self, cmd): self.template = cmd
    def __enter__(self):
        for attempt in range(3):  # another process may take a free port first
            self.dir = tempfile.mkdtemp(prefix="js-wire-"); self.port, self.http = free_port(), free_port()
            self.cmd = [a.format(port=self.port, http=self.http, dir=self.dir) for a in shlex.split(self.template)]
            try: return self.launch()
            except SystemExit:
                if attempt == 2: raise
    def launch(self):
        self.p = subprocess.Popen(self.cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while True:
            try:
                Conn("127.0.0.1", self.port).s.close()
                r = Run("127.0.0.1", self.port); c = r.conn("x"); c.s.settimeout(1)
                c.s.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _W 1\r\nPUB $JS.API.INFO _W 0\r\n\r\n'); c.read(); r.end()
                if any(isinstance(f, dict) and "json" in f for f in c.frames): break
            except OSError: pass
            if self.p.poll() is not None or time.monotonic() > end: self.__exit__(); raise SystemExit("the server did not start: " + " ".join(self.cmd))
            time.sleep(0.02)
        return self
    def __exit__(self, *a):
        if self.p.poll() is None:
            self.p.terminate()
            try: self.p.wait(10)
            except subprocess.TimeoutExpired: self.p.kill(); self.p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def main(argv):
    global SLOW, WIDTH
    opts = {"-k": "", "-j": "1", "--http": None, "--start": None, "--slow": "1"}; rest = []; flags = set(); it = iter(argv)
    for a in it:
        if a in opts: opts[a] = next(it)
        elif a in ("-v", "--list", "-h", "--help"): flags.add(a)
        else: rest.append(a)
    if flags & {"-h", "--help"} or not rest: print(__doc__); return 2
    SLOW = float(opts["--slow"]); WIDTH = 100000 if "-v" in flags else 300
    host, port = (None, None) if opts["--start"] or "--list" in flags else (rest.pop(0), int(rest.pop(0)))
    todo = [json.loads(l) for f in rest for l in open(f) if l.strip()]
    todo = [s for s in todo if opts["-k"].lower() in s["name"].lower() or opts["-k"] == s.get("topic")]
    if "--list" in flags:
        for s in todo: print("%-12s %s" % (s.get("topic"), s["name"]))
        return 0
    results = {}; lock = threading.Lock(); queue = list(enumerate(todo))
    def work():
        while True:
            with lock:
                if not queue: return
                i, sc = queue.pop(0)
            try:
                if opts["--start"]:
                    with Server(opts["--start"]) as sv: d = replay(sc, "127.0.0.1", sv.port, sv.http)
                else:
                    Run(host, port).wipe(); d = replay(sc, host, port, int(opts["--http"]) if opts["--http"] else None)
            except (Exception, SystemExit) as e: d = "%s: %s" % (type(e).__name__, e)
            with lock: results[i] = d
    n = int(opts["-j"]) if opts["--start"] else 1
    threads = [threading.Thread(target=work) for _ in range(n)]
    for t in threads: t.start()
    for t in threads: t.join()
    by = {}; bad = skipped = 0
    for i, sc in enumerate(todo):
        d = results[i]; row = by.setdefault(sc.get("topic", ""), [0, 0]); row[1] += 1
        if d is None: row[0] += 1
        elif d.startswith("SKIP"): skipped += 1; print("SKIP %s: %s" % (sc["name"], d[5:]))
        else: bad += 1; print("DIFF %s: %s" % (sc["name"], d))
    for k, (a, b) in by.items(): print("%-14s %d of %d" % (k, a, b))
    print("%d of %d scenarios as recorded%s" % (len(todo) - bad - skipped, len(todo), ", %d skipped" % skipped if skipped else ""))
    return 1 if bad else 0


if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
