"""Two-party SPU (CHEETAH) benchmark over TCP: one process per party.

    python bench.py CASE [CASE ...] [options]     # starts both parties
    python bench.py --list

Party 0 is the client (owns the activations), party 1 the server (owns the
weights); a case with one input gives party 0 the whole input, which is secret
shared before the clock starts.  Prints one JSON line a measured run.
"""
import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def busy():
    """Seconds of CPU the whole machine has spent since boot."""
    v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return (sum(v) - v[3] - v[4]) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- one party
def party(a):
    import jax
    import numpy as np
    import spu
    import spu.libspu as L
    from spu.utils import frontend as fe

    cfg = L.RuntimeConfig(L.ProtocolKind.CHEETAH, L.FieldType.FM64, 18)
    cfg.max_concurrency = a.threads
    cfg.fxp_exp_mode = L.RuntimeConfig.ExpMode.EXP_TAYLOR
    cfg.fxp_exp_iters = 6
    cfg.enable_pphlo_profile = True
    cfg.enable_hal_profile = a.hal
    cfg.experimental_enable_colocated_optimization = a.private
    cc = L.CheetahConfig()
    cc.enable_mul_lsb_error = a.lsb
    cfg.cheetah_2pc_config = cc

    desc = L.link.Desc()
    desc.recv_timeout_ms = 3600 * 1000
    desc.http_timeout_ms = 3600 * 1000
    desc.brpc_channel_protocol = a.brpc
    for i, hp in enumerate(a.hosts.split(",")):
        desc.add_party(f"p{i}", hp)
    lctx = L.link.create_brpc(desc, a.rank)
    io, rt = spu.Io(2, cfg), spu.Runtime(lctx, cfg)
    vis = L.Visibility.VIS_SECRET
    copts = L.CompilerOptions()
    copts.enable_optimize_denominator_with_broadcast = True
    from cases import make_cases
    cases = make_cases()

    def ship(name, arr, owner):
        """The owner makes both shares and sends the peer its one."""
        if a.rank == owner:
            # with the colocated optimisation an owner's rank makes the value private to it
            sh = io.make_shares(arr, vis, owner if a.private and owner == 1 else -1)
            o = sh[1 - owner]
            lctx.send(1 - owner, bytes(o.meta))
            lctx.send(1 - owner, len(o.share_chunks).to_bytes(4, "little"))
            for ch in o.share_chunks:
                lctx.send(1 - owner, bytes(ch))
            mine = sh[owner]
        else:
            mine = L.Share()
            mine.meta = lctx.recv(owner)
            n = int.from_bytes(lctx.recv(owner), "little")
            mine.share_chunks = [lctx.recv(owner) for _ in range(n)]
        rt.set_var(name, mine)

    for case in a.cases:
        fn, mk0, mk1 = cases[case]
        args, owners = [], []
        for o, mk in ((0, mk0), (1, mk1)):
            if mk is not None:
                v = mk(np.random.default_rng(17 + o))
                args.append(v)
                owners += [o] * len(jax.tree_util.tree_leaves(v))
        flat, _ = jax.tree_util.tree_flatten(tuple(args))
        names = [f"{case}-in{i}" for i in range(len(flat))]
        f2 = lambda *xs: fn(*xs)
        t = time.time()
        exe, out = fe.compile(fe.Kind.JAX, f2, args, {}, names, [vis] * len(flat),
                              lambda of: [f"{case}-out{i}" for i in range(len(of))], copts=copts)
        tc = time.time() - t
        if a.rank == 0 and a.dump:
            open(a.dump, "w").write(exe.code.decode())
        for n, arr, o in zip(names, flat, owners):
            ship(n, arr, o)
        for rep in range(a.reps):
            lctx.barrier()
            sys.stdout.flush()
            os.write(1, f"@@ {case} {rep}\n".encode())
            b0, c0, t = busy(), time.process_time(), time.time()
            rt.run(exe)
            lctx.barrier()
            dt, c0, b0 = time.time() - t, time.process_time() - c0, busy() - b0
            os.write(1, f"@@ {case} {rep} {dt:.4f} {tc:.2f} {c0:.3f} {b0:.3f}\n".encode())
        # reconstruct on party 0 and compare with clear text
        sh = rt.get_var(exe.output_names[0])
        if a.rank == 1:
            lctx.send(0, bytes(sh.meta))
            lctx.send(0, len(sh.share_chunks).to_bytes(4, "little"))
            for ch in sh.share_chunks:
                lctx.send(0, bytes(ch))
        else:
            o = L.Share()
            o.meta = lctx.recv(1)
            o.share_chunks = [lctx.recv(1) for _ in range(int.from_bytes(lctx.recv(1), "little"))]
            got = io.reconstruct([sh, o])
            want = np.asarray(jax.jit(fn)(*args))
            d = np.abs(got.astype("float64") - want.astype("float64"))
            os.write(1, f"@@err {case} {d.max():.3e} {d.mean():.3e}\n".encode())
        for n in names + exe.output_names:
            rt.del_var(n)
    lctx.stop_link()


# ---------------------------------------------------------------- driver
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("cases", nargs="*")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--rank", type=int)
    ap.add_argument("--hosts", default="127.0.0.1:19601,127.0.0.1:19602")
    ap.add_argument("--reps", type=int, default=2)
    ap.add_argument("--threads", type=int, default=1, help="SPU max_concurrency (OT instances)")
    ap.add_argument("--private", action="store_true", help="the server's inputs stay private to it (colocated optimisation)")
    ap.add_argument("--lsb", action="store_true", help="cheetah enable_mul_lsb_error")
    ap.add_argument("--hal", action="store_true", help="also print the HAL-level profile")
    ap.add_argument("--profile", action="store_true", help="print party 0's per-op profile of the last run")
    ap.add_argument("--brpc", default="baidu_std", help="brpc channel protocol")
    ap.add_argument("--dump", default="")
    ap.add_argument("--cpus", default="0,1")
    ap.add_argument("--netns", default="", help="two network namespaces, e.g. pna,pnb")
    a = ap.parse_args()
    if a.list:
        from cases import make_cases
        print("\n".join(make_cases()))
        return
    if a.rank is not None:
        return party(a)
    ns = a.netns.split(",") if a.netns else None
    procs, files = [], []
    for r in (0, 1):
        cmd = [sys.executable, os.path.join(HERE, "bench.py")] + sys.argv[1:] + ["--rank", str(r)]
        if a.cpus:
            cmd = ["taskset", "-c", a.cpus.split(",")[r]] + cmd
        if ns:
            cmd = ["ip", "netns", "exec", ns[r]] + cmd
        f = tempfile.NamedTemporaryFile("w+", delete=False, suffix=f".p{r}.log")
        files.append(f)
        procs.append(subprocess.Popen(cmd, stdout=f, stderr=subprocess.STDOUT,
                                      env=dict(os.environ, JAX_PLATFORMS="cpu", OMP_NUM_THREADS="1")))
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    while any(p.poll() is None for p in procs):
        if stop:  # out of time: print what has finished
            [p.kill() for p in procs]
            [p.wait() for p in procs]
            break
        if any(p.poll() for p in procs):
            time.sleep(2)
            [p.kill() for p in procs if p.poll() is None]
        time.sleep(0.05)
    rc = [p.returncode for p in procs]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    logs = [open(f.name, errors="replace").read() for f in files]
    if any(rc) and not stop:
        print("failed", rc, "\n", logs[0][-3000:], "\n----\n", logs[1][-3000:])
        sys.exit(1)
    link = re.compile(r"Link details: total send bytes (\d+), recv bytes (\d+), send actions (\d+), recv actions (\d+)")
    err = {m[1]: (m[2], m[3]) for m in re.finditer(r"@@err (\S+) (\S+) (\S+)", logs[0])}
    for m in re.finditer(r"@@ (\S+) (\d+)\n(.*?)@@ \1 \2 (\S+) (\S+) (\S+) (\S+)\n", logs[0], re.S):
        case, rep, body, dt, tc, cpu0, bz = m.groups()
        l = link.search(body)
        m1 = re.search(rf"@@ {re.escape(case)} {rep}\n(.*?)@@ {re.escape(case)} {rep} \S+ \S+ (\S+) ", logs[1], re.S)
        d = dict(name=case, peer="spu 0.9.5 cheetah", run=int(rep), threads=1, seconds=float(dt),
                 cpu_client=float(cpu0), cpu_server=float(m1[2]) if m1 else None)
        # CPU time that neither party used: work of others that may have spoilt the timing
        d["foreign_cpu"] = round(float(bz) - float(cpu0) - float(m1[2]), 2) if m1 else None
        if l:
            d.update(bytes_up=int(l[1]), bytes_down=int(l[2]), messages_up=int(l[3]), messages_down=int(l[4]))
        d["compile_seconds"] = float(tc)
        if case in err:
            d.update(error=float(err[case][0]), mean_error=float(err[case][1]))
        print(json.dumps(d), flush=True)
        if a.profile and int(rep) == a.reps - 1:
            print("\n".join("    " + re.sub(r"^.*?\] ?", "", x, count=3)[:200] for x in body.splitlines()
                            if "executed" in x or "profiling" in x or "Profiling" in x))
    print(json.dumps(dict(name="all", peer="spu 0.9.5 cheetah", peak_rss=peak)), flush=True)
    for f in files:
        os.unlink(f.name)


if __name__ == "__main__":
    main()
