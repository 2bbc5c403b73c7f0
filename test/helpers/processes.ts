import { readdirSync, readFileSync } from 'node:fs';

/** What a process of the service does. `job` is the process of one export job. */
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
  /** When it started, clock ticks since the machine did. */
  readonly started: string;
  readonly words: readonly string[];
}

/** Reads one process from /proc; undefined when it is gone, or only waits to be reaped. */
function readProcess(pid: number): ProcessEntry | undefined {
  try {
    // Behind the name, which may hold anything: the state is the third field of proc(5), the start the 22nd.
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

/**
 * Recognises a role by the words of its command line; undefined for processes that come and go, such as a lock's
 * helper.
 */
function roleOf(words: readonly string[]): ProcessRole | undefined {
  if (words[0]?.endsWith('nats-server') === true) return 'nats-server';
  if (words.includes('role')) return processRoles.find((known) => known === words[words.indexOf('role') + 1]);
  if (words.some((word) => /worker[a-z-]*\.js$/.test(word))) return 'job';
  return words.includes('start') ? 'supervisor' : undefined;
}

/** Lists everything that runs below a process, at any depth, with the process itself. Needs /proc. */
export function listTree(root: number): number[] {
  const entries = readProcesses();
  const tree = new Set([root]);
  // a parent may stand after its child in the list
  for (let before = 0; before < tree.size;) {
    before = tree.size;
    for (const { pid, parent } of entries) if (tree.has(parent)) tree.add(pid);
  }
  return entries.filter(({ pid }) => tree.has(pid)).map(({ pid }) => pid);
}

/** Lists the processes of a service by their role: its supervisor and what runs below it. */
export function listServiceProcesses(supervisor: number): ServiceProcess[] {
  const tree = new Set(listTree(supervisor));
  const entries = readProcesses();
  const commandLines = new Map(entries.map(({ pid, words }) => [pid, words.join('\0')]));
  return entries.flatMap(({ pid, parent, words }) => {
    // a child that has not loaded its own program yet shows the command line of its parent
    const isBorn = commandLines.get(parent) !== words.join('\0');
    const role = tree.has(pid) && isBorn ? roleOf(words) : undefined;
    return role === undefined ? [] : [{ pid, role }];
  });
}

/**
 * Sends a signal; false when the process was gone before it came. Throws for an id that would reach the tests' own
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

/** Says whether a process stands still after SIGSTOP, or is gone. */
export function isStopped(pid: number): boolean {
  return readProcess(pid)?.stopped ?? true;
}

/** Says whether a process runs (one that only waits to be reaped does not). */
export function isAlive(pid: number): boolean {
  return readProcess(pid) !== undefined;
}

/** Processes that were seen, of which some may run still. */
export interface ProcessMemory {
  note(pids: Iterable<number>): void;
  /** Those that run. */
  alive(): number[];
  clear(): void;
}

/**
 * Creates the memory. Each is known by its id and its start: a machine that starts thousands of processes gives an id to
 * another one within minutes, which a test would wait for, or kill.
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

/** Reads how much memory a process holds now, bytes; 0 when it is gone. */
export function readResidentBytes(pid: number): number {
  try {
    return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
