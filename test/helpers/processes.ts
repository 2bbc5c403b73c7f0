import { readdirSync, readFileSync } from 'node:fs';

/** Role of a process of the service. `job` is the process of one export job. */
export const processRoles = ['supervisor', 'nats-server', 'ingest', 'compact', 'export', 'job'] as const;
export type ProcessRole = (typeof processRoles)[number];

export interface ServiceProcess {
  readonly pid: number;
  readonly role: ProcessRole;
}

interface ProcessEntry {
  readonly pid: number;
  readonly stopped: boolean;
  readonly parent: number;
  /** Time of its start, clock ticks since the machine's. */
  readonly started: string;
  readonly words: readonly string[];
}

/** Reads one process from /proc; undefined if it has exited, or only waits to be reaped. */
function readProcess(pid: number): ProcessEntry | undefined {
  try {
    // After the name, which may have any bytes: the state is the third field of proc(5), the start the 22nd.
    const [state, parent, ...rest] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    if (state === undefined || 'ZX'.includes(state)) return undefined;
    return {
      pid,
      stopped: state === 'T',
      parent: Number(parent),
      started: rest[17] ?? '',
      words: readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0'),
    };
  } catch {
    return undefined;
  }
}

function readProcesses(): ProcessEntry[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map((pid) => readProcess(Number(pid))).filter((entry) => entry !== undefined);
}

/** Returns the role by the words of a command line; undefined for short-lived processes, such as a lock's helper. */
function roleOf(words: readonly string[]): ProcessRole | undefined {
  if (words[0]?.endsWith('nats-server') === true) return 'nats-server';
  if (words.includes('role')) return processRoles.find((known) => known === words[words.indexOf('role') + 1]);
  if (words.some((word) => /worker[a-z-]*\.js$/.test(word))) return 'job';
  return words.includes('start') ? 'supervisor' : undefined;
}

/** Lists a process and its descendants at any depth. Needs /proc. */
export function listTree(root: number): number[] {
  const entries = readProcesses();
  const tree = new Set([root]);
  // a parent may be after its child in the list
  for (let before = 0; before < tree.size;) {
    before = tree.size;
    for (const { pid, parent } of entries) if (tree.has(parent)) tree.add(pid);
  }
  return entries.filter(({ pid }) => tree.has(pid)).map(({ pid }) => pid);
}

/** Lists the processes of a service by role: its supervisor and all descendants. */
export function listServiceProcesses(supervisor: number): ServiceProcess[] {
  const tree = new Set(listTree(supervisor));
  const entries = readProcesses();
  const commandLines = new Map(entries.map(({ pid, words }) => [pid, words.join('\0')]));
  return entries.flatMap(({ pid, parent, words }) => {
    // a child that has not loaded its program yet shows the command line of its parent
    const isBorn = commandLines.get(parent) !== words.join('\0');
    const role = tree.has(pid) && isBorn ? roleOf(words) : undefined;
    return role === undefined ? [] : [{ pid, role }];
  });
}

/**
 * Sends a signal; returns false if the process had exited before. Throws for an id that would reach the tests' own
 * process group.
 */
export function signalProcess(pid: number, signal: NodeJS.Signals): boolean {
  if (!(pid > 1)) throw new Error(`${pid} is the id of no process of a test`);
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** Reports whether a process is suspended by SIGSTOP, or has exited. */
export function isStopped(pid: number): boolean {
  return readProcess(pid)?.stopped ?? true;
}

/** Reports whether a process runs (one that only waits to be reaped does not). */
export function isAlive(pid: number): boolean {
  return readProcess(pid) !== undefined;
}

/** Known processes, some of which may still run. */
export interface ProcessMemory {
  note(pids: Iterable<number>): void;
  /** Returns those that run. */
  alive(): number[];
  clear(): void;
}

/**
 * Creates an empty set. A process is identified by its id and start time, because a busy machine reuses an id within
 * minutes. A test would otherwise wait for the new process, or kill it.
 */
export function createProcessMemory(): ProcessMemory {
  const starts = new Map<number, string>();
  return {
    note(pids) {
      for (const pid of pids) {
        const started = readProcess(pid)?.started;
        if (started !== undefined) starts.set(pid, started);
      }
    },
    alive: () => [...starts].filter(([pid, started]) => readProcess(pid)?.started === started).map(([pid]) => pid),
    clear: () => starts.clear(),
  };
}

/** Returns the present memory of a process, bytes; 0 if it has exited. */
export function readResidentBytes(pid: number): number {
  try {
    return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
