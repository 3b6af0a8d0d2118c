"""One text alone through the files of `fhe`, client and server on this machine: what `encrypted_one.py` and `decoder_one.py` share."""
import shutil

from encrypted_run import shown

ROWS = 128


class Run:
    """`text`, encrypted and answered in the folder `work`. Keys are kept there for as long as the manifest stays the same."""

    def __init__(self, model, work, calibration, text, *plan):
        work.mkdir(parents=True, exist_ok=True)
        self.manifest, self.public, self.keys = work / "manifest.json", work / "model.public", work / "keys"
        self.request, self.reply, self.text = work / "request", work / "reply", work / "text.txt"
        before = self.manifest.read_bytes() if self.manifest.exists() else None
        self.took = {"plan": shown(
            "plan", model, "--force", "--protocol", "fhe", "--rows", ROWS, "--texts", 1, "--calibration", calibration,
            "--manifest", self.manifest, "--public-model", self.public, "--public-embedding", *plan)}
        if self.manifest.read_bytes() != before or not (self.keys / "evaluation.keys").exists():
            shutil.rmtree(self.keys, ignore_errors=True)
            self.took["keygen"] = shown("keygen", "--manifest", self.manifest, "--out", self.keys)
        for old in (self.request, self.reply):
            old.unlink(missing_ok=True)
        self.text.write_text(text + "\n", encoding="utf-8")
        self.took["encrypt"] = shown(
            "encrypt", "--manifest", self.manifest, "--public", self.public, "--keys", self.keys, "--input", self.text,
            "--out", self.request)
        self.took["run"] = shown(
            "run", model, "--manifest", self.manifest, "--keys", self.keys / "evaluation.keys", "--request", self.request,
            "--out", self.reply, "--calibration", calibration)

    def decrypt(self):
        """The flags of `decrypt`."""
        return "decrypt", "--manifest", self.manifest, "--public", self.public, "--keys", self.keys, "--reply", self.reply

    def sizes(self):
        """Bytes of what goes over the wire, by name."""
        files = [("keys", self.keys / "evaluation.keys"), ("request", self.request), ("reply", self.reply)]
        return {name: path.stat().st_size for name, path in files}

    def show(self):
        """Prints seconds and sizes."""
        print("\n".join(f"{verb:<10} {seconds:10.1f} s" for verb, seconds in self.took.items()))
        print("\n".join(f"{name:<10} {size / 2**20:10.1f} MiB" for name, size in self.sizes().items()))
