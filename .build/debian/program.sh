#!/bin/sh
PATH=/usr/lib/tributary/bin:$PATH
export PATH
exec /usr/lib/tributary/bin/node /usr/lib/tributary/dist/main.js "$@"
