#!/bin/sh
# Unpacks the texts that scripts/make_decoder.py reads from Debian's packages, without installing them:
# DIR/kjv.txt, a verse per line, and DIR/python, the pages of Python's documentation.
#
#     scripts/fetch_texts.sh DIR
set -eu
[ $# -eq 1 ] || { echo "usage: scripts/fetch_texts.sh DIR" >&2; exit 2; }
command -v apt-get >/dev/null || { echo "fetch_texts: this needs a Debian system (apt-get, dpkg)" >&2; exit 1; }
[ ! -f "$1/versions" ] || exit 0
mkdir -p "$1/packages"
cd "$1/packages"
apt-get download --quiet bible-kjv bible-kjv-text python3.11-doc
for package in *.deb; do
	dpkg -x "$package" root
done
# The program reads its data from the folder that it is run in.
(cd root/usr/lib && ../bin/bible -f -l1000 gen1:1-rev22:21) >../kjv.txt
cp -r root/usr/share/doc/python3.11/html ../python
for package in *.deb; do
	dpkg-deb --show "$package"
done >../versions
cd .. && rm -r packages
