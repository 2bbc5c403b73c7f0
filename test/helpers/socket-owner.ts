import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

const portOf = (address = ''): number => Number.parseInt(address.split(':')[1] ?? '', 16);

/** Returns the inode of a server's socket of an IPv4 connection, by the ports of both ends. Needs /proc. */
function findSocket(serverPort: number, clientPort: number): string | undefined {
  const lines = readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1);
  const fields = lines.map((line) => line.trim().split(/\s+/));
  return fields.find(([, local, remote]) => portOf(local) === serverPort && portOf(remote) === clientPort)?.[9];
}

function holds(pid: number, link: string): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`) === link;
      } catch {
        return false;
      }
    });
  } catch {
    return false;
  }
}

/** Finds the process, of several, that serves a connection; undefined while none has accepted it. */
export function findSocketOwner(pids: readonly number[], serverPort: number, clientPort: number): number | undefined {
  const socket = findSocket(serverPort, clientPort);
  return socket === undefined ? undefined : pids.find((pid) => holds(pid, `socket:[${socket}]`));
}
