"""A private chat in the terminal: SmolLM2-135M-Instruct answers in another process. What `make chat` starts."""
import json
import os
import subprocess
import sys

from two_processes import ROOT, Failed, Server, binary, model_folder, run, shown


def answer(server, messages, tokens):
    """The model's words, shown as they come, and what the session cost."""
    command = [binary(), "generate", "--server", server.address, "--pin", server.pin, "--json", "--quiet", "--max-tokens", tokens, "--messages", "-"]
    text, last = "", {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(json.dumps(messages))
        process.stdin.close()
        for line in process.stdout:
            last = json.loads(line)
            if "token" in last:
                text += last["text"]
                print(shown(last["text"]), end="", flush=True)
    if process.returncode != 0:
        raise Failed(f"`hushed generate` ended with {process.returncode}: see the message above")
    return text, last


def main():
    tokens = os.environ.get("TOKENS", "").strip() or "48"
    model = model_folder(sys.executable, ROOT / "scripts" / "fetch_decoder.py")
    print("hushed serve      has the weights of SmolLM2-135M-Instruct\nhushed generate   has the conversation, and no weights")
    print("an empty line ends the chat\n")
    messages = []
    with Server(model, "--max-tokens", "256") as server:
        while True:
            try:
                question = input("you     ").strip()
            except EOFError:
                question = ""
            if not question:
                return
            messages.append({"role": "user", "content": question})
            print("model   ", end="", flush=True)
            text, cost = answer(server, messages, tokens)
            messages.append({"role": "assistant", "content": text})
            sent = (cost["bytes_up"] + cost["bytes_down"]) / 1e6
            print(f"\n        {cost['prefix_tokens']} public + {cost['prompt_tokens']} private + {cost['tokens']} tokens: the first after "
                  f"{cost['first_token_seconds']:.1f} s, then {cost['seconds_a_token']:.2f} s each; {sent:.0f} MB\n")


if __name__ == "__main__":
    run(main)
