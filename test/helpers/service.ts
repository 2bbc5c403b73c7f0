import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { randomInt } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pass } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Random } from '../../src/demo/random.ts';
import { statusCommand } from '../../src/cli/status.ts';
import { isLongRun } from './chaos.ts';
import {
  createProcessMemory,
  isAlive,
  isStopped,
  listServiceProcesses,
  listTree,
  signalProcess,
  type ProcessRole,
  type ServiceProcess,
} from './processes.ts';
import { waitFor, within } from './wait.ts';
import { runCommandHere } from './run-command.ts';

const run = promisify(execFile);
/**
 * Ports of this test process alone: those of a service that is just down, or about to listen, must not be drawn by the
 * services of another test. Below those that the system gives to outgoing connections.
 */
const lanes = { first: 10_000, count: 2700, lanes: 8 } as const;
const lane = lanes.first + (Number(process.env['VITEST_POOL_ID'] ?? 1) % lanes.lanes) * lanes.count;
let drawnPorts = randomInt(lanes.count);

async function nextPort(): Promise<string> {
  for (;;) {
    drawnPorts += 1;
    const port = lane + (drawnPorts % lanes.count);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false));
      server.listen({ host: '127.0.0.1', port, exclusive: true }, () => server.close(() => resolve(true)));
    });
    if (isFree) return String(port);
  }
}

const entry = path.resolve(import.meta.dirname, '../../dist/main.js');
const goneMs = 40_000;
/**
 * How long a start, a stop and a command may take on a loaded machine; a start with the long form's large stores takes
 * longer.
 */
const startMs = isLongRun ? 300_000 : 120_000;
const stopMs = 180_000;
const commandMs = isLongRun ? 600_000 : 120_000;

export interface TestServiceOptions {
  /** Created when missing. */
  readonly dataDir: string;
  /**
   * Settings (`TRIBUTARY_...`) beside the harness's own; nothing else of the machine's settings reaches the service.
   */
  readonly settings?: Readonly<Record<string, string>>;
  /** Further words of `tributary start`. */
  readonly words?: readonly string[];
  /** The program's compiled entry; that of `make build` by default. */
  readonly entry?: string;
  /** A command, with its words, that runs the program and lets it keep its process id; a tracer. */
  readonly under?: readonly string[];
}

/** The real service, run by its command line as an operator does. */
export interface TestService {
  readonly dataDir: string;
  /** Addresses of the import and the export area; another port after each start. */
  readonly s2s: string;
  readonly api: string;
  /** The operator's address. */
  readonly ops: string;
  /** The supervisor's process id. */
  readonly pid: number;
  /**
   * Runs a command of the program on the same data folder; returns its JSON answer. A failed one throws with its
   * sentence.
   */
  command(...words: readonly string[]): Promise<Record<string, unknown>>;
  /**
   * The answer of `tributary status`, whatever it finds wrong. Asked in the tests' own process, for those who ask again
   * and again: a program that starts for each look takes the processor from what is waited for.
   */
  status(): Promise<Record<string, unknown>>;
  /** The service's processes that run now. */
  processes(): ServiceProcess[];
  /**
   * Kills a process of a role with SIGKILL, a random one where there are several, and waits until it is gone.
   * `stoppedMs` lets it stand still for a while before. Returns its id, or undefined when none runs. After the
   * supervisor, `startAgain` brings the service back.
   */
  kill9(role: ProcessRole, random: Random, stoppedMs?: number): Promise<number | undefined>;
  /**
   * Starts a service that has ended on the same data folder; its processes can be killed before it is ready. Settings
   * given replace those of before, for good.
   */
  startAgain(settings?: Readonly<Record<string, string>>): Promise<void>;
  /** Stops every process where it stands, with SIGSTOP; what the kernel does for them already is not stopped. */
  freeze(): Promise<void>;
  /** Kills every process with SIGKILL and waits until they are gone. */
  killAll(): Promise<void>;
  /** Drains with SIGTERM; throws when the exit code is not 0, or a process of the service is left. */
  stop(): Promise<void>;
  /** Kills whatever is left, for the end of a failed test. */
  destroy(): Promise<void>;
  /** The end of the service's log. */
  lastLog(lines?: number): string;
}

interface Supervisor {
  readonly child: ChildProcess;
  readonly exited: Promise<[number | null, NodeJS.Signals | null]>;
}

/**
 * The environment in which the harness runs `tributary`. One import process, unless a test is about several: each takes
 * its time to start.
 */
function environmentOf(settings: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const machine = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('TRIBUTARY_') || name === 'TRIBUTARY_CACHE_DIR',
  );
  return {
    ...Object.fromEntries(machine),
    TRIBUTARY_OPS_PORT: '0',
    TRIBUTARY_FLUSH_AGE_MS: '500',
    TRIBUTARY_INGEST_WORKERS: '1',
    TRIBUTARY_LOG_LEVEL: 'info',
    ...settings,
  };
}

/** Runs one command of the program and returns its JSON answer. Throws with what it wrote on standard error. */
export async function runCommand(
  words: readonly string[],
  settings: Readonly<Record<string, string>> = {},
  program = entry,
): Promise<Record<string, unknown>> {
  const { stdout } = await run(process.execPath, [program, ...words], {
    env: environmentOf(settings),
    timeout: commandMs,
    killSignal: 'SIGKILL',
  });
  return JSON.parse(stdout) as Record<string, unknown>;
}

async function askStatus(dataDir: string, environment: NodeJS.ProcessEnv): Promise<Record<string, unknown>> {
  const { signal } = new AbortController();
  let answered: unknown;
  const answer = (value: unknown): void => void (answered = value);
  await runCommandHere(statusCommand, ['--data', dataDir], {
    environment,
    entry,
    answer,
    print: () => undefined,
    note: () => undefined,
    stop: signal,
    force: signal,
  });
  // as a reader of its standard output gets it
  return JSON.parse(JSON.stringify(answered)) as Record<string, unknown>;
}

function waitUntilGone(pids: readonly number[], what: string): Promise<void> {
  return waitFor(`${what} is gone`, () => !pids.some(isAlive), goneMs);
}

/** Starts the service on free ports, each time others, and waits until it says that it is ready. The program must have been built. */
export async function startTestService(options: TestServiceOptions): Promise<TestService> {
  const { dataDir, under = [], entry: program = entry } = options;
  if (!existsSync(program)) throw new Error(`there is no ${program}: run 'make build' first`);
  let { settings = {} } = options;
  mkdirSync(dataDir, { recursive: true });
  const logFile = `${dataDir}.log`;
  const lastLog = (lines = 20): string => readFileSync(logFile, 'utf8').trim().split('\n').slice(-lines).join('\n');
  const seen = createProcessMemory();

  let destroyed = false;
  let supervisor: Supervisor;
  let addresses: { readonly s2s: string; readonly api: string; readonly ops: string };
  const start = async (): Promise<void> => {
    // A failed test's other half may be about to start it again.
    if (destroyed) throw new Error('the service was destroyed');
    const log = openSync(logFile, 'a');
    const ports = ['--s2s-port', await nextPort(), '--api-port', await nextPort()];
    const words = ['start', '--data', dataDir, ...ports, ...(options.words ?? [])];
    const [command, ...before] = [...under, process.execPath];
    const child = spawn(command, [...before, program, ...words], {
      env: environmentOf(settings),
      stdio: ['ignore', 'pipe', log],
    });
    closeSync(log);
    const exited = once(child, 'exit') as Supervisor['exited'];
    // known before it is ready, so that a test can break it while it starts
    supervisor = { child, exited };
    if (child.stdout === null) throw new Error('the service has no standard output');
    const lines = createInterface({ input: child.stdout });
    const line = Promise.race([once(lines, 'line') as Promise<[string]>, exited.then(() => undefined)]);
    const first = await within('the service is ready', line, startMs).catch(async (error: unknown) => {
      await killSeen();
      throw new Error(`${String(error)}; its log ends:\n${lastLog()}`);
    });
    if (first === undefined) throw new Error(`the service did not start; its log ends:\n${lastLog()}`);
    addresses = JSON.parse(first[0]) as typeof addresses;
  };
  const pidOf = (): number => supervisor.child.pid ?? 0;
  const noteTree = (): void => seen.note(listTree(pidOf()));
  const killSeen = async (): Promise<void> => {
    noteTree();
    for (const pid of seen.alive()) signalProcess(pid, 'SIGKILL');
    await waitFor('every process of the service is gone', () => seen.alive().length === 0, goneMs);
    seen.clear();
  };

  await start();
  return {
    dataDir,
    get s2s() {
      return addresses.s2s;
    },
    get api() {
      return addresses.api;
    },
    get ops() {
      return addresses.ops;
    },
    get pid() {
      return pidOf();
    },
    command: (...words) => runCommand([...words, '--data', dataDir], settings, program),
    status: () => askStatus(dataDir, environmentOf(settings)),
    processes: () => listServiceProcesses(pidOf()),
    async kill9(role, random, stoppedMs = 0) {
      noteTree();
      const candidates = listServiceProcesses(pidOf()).filter((candidate) => candidate.role === role);
      if (candidates.length === 0) return undefined;
      const { pid } = random.pick(candidates);
      if (stoppedMs > 0 && signalProcess(pid, 'SIGSTOP')) await pass(stoppedMs);
      if (!signalProcess(pid, 'SIGKILL')) return undefined;
      await waitUntilGone([pid], role);
      if (role === 'supervisor') await within('the supervisor is gone', supervisor.exited);
      return pid;
    },
    async startAgain(changed) {
      settings = { ...settings, ...changed };
      await start();
    },
    async freeze() {
      // the supervisor is the first: from then on nothing new starts but what was starting
      const stopped = new Set<number>();
      for (let before = -1; stopped.size > before;) {
        before = stopped.size;
        for (const pid of listTree(pidOf())) if (!stopped.has(pid) && signalProcess(pid, 'SIGSTOP')) stopped.add(pid);
        await waitFor('every process stands still', () => [...stopped].every(isStopped));
      }
      noteTree();
    },
    async killAll() {
      await killSeen();
      await within('the supervisor is gone', supervisor.exited);
    },
    async stop() {
      const tree = listTree(pidOf());
      supervisor.child.kill('SIGTERM');
      const [code, signal] = await within('the service has stopped', supervisor.exited, stopMs).catch(
        (error: unknown) => {
          throw new Error(
            `${String(error)}; these processes are left: ${JSON.stringify(listServiceProcesses(pidOf()))}; its log ends:\n${lastLog()}`,
          );
        },
      );
      if (code !== 0)
        throw new Error(`the service ended with ${signal ?? `exit code ${code}`}; its log ends:\n${lastLog()}`);
      await waitUntilGone(tree, 'every process of the service');
    },
    destroy() {
      destroyed = true;
      return killSeen();
    },
    lastLog,
  };
}
