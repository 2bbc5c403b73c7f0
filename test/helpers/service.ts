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
 * Ports of this test process alone, so that services of other tests do not take those of one that restarts. They are
 * below those that the system assigns to outgoing connections.
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
 * Time limits of a start, a stop and a command on a loaded machine; a start with the long form's large stores takes
 * longer.
 */
const startMs = isLongRun ? 300_000 : 120_000;
const stopMs = 180_000;
const commandMs = isLongRun ? 600_000 : 120_000;

export interface TestServiceOptions {
  /** Created if missing. */
  readonly dataDir: string;
  /** Settings (`TRIBUTARY_...`) besides the harness's own; no other setting of the machine reaches the service. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Further words of `tributary start`. With `--s2s-port` and `--api-port`, it keeps its ports. */
  readonly words?: readonly string[];
  /** The program's compiled entry; that of `make build` by default. */
  readonly entry?: string;
  /** A command, with its words, that runs the program and keeps its process id, such as a tracer. */
  readonly under?: readonly string[];
}

/** The real service, started by its command line as an operator does. */
export interface TestService {
  readonly dataDir: string;
  /** Addresses of the import and the export area; the port changes with each start. */
  readonly s2s: string;
  readonly api: string;
  readonly ops: string;
  readonly pid: number;
  /**
   * Runs a command of the program on the same data folder; returns its JSON result. Throws the message of a failed one.
   */
  command(...words: readonly string[]): Promise<Record<string, unknown>>;
  /**
   * Returns the result of `tributary status`, including its problems. It runs in the tests' process, because polls
   * through a new process each would take the processor from the service.
   */
  status(): Promise<Record<string, unknown>>;
  /** Returns the running processes of the service. */
  processes(): ServiceProcess[];
  /**
   * Kills a process of a role with SIGKILL, a random one of several, and waits until it has exited. `stoppedMs`
   * suspends it for a while before. Returns its id, or undefined if none runs. After a kill of the supervisor,
   * `startAgain` restarts the service.
   */
  kill9(role: ProcessRole, random: Random, stoppedMs?: number): Promise<number | undefined>;
  /**
   * Starts an ended service on the same data folder; its processes can be killed before it is ready. Given settings
   * replace the previous ones permanently.
   */
  startAgain(settings?: Readonly<Record<string, string>>): Promise<void>;
  /** Suspends every process with SIGSTOP; work of the kernel continues. */
  freeze(): Promise<void>;
  /** Kills every process with SIGKILL and waits until they have exited. */
  killAll(): Promise<void>;
  /** Drains with SIGTERM; throws if the exit code is not 0, or a process of the service remains. */
  stop(): Promise<void>;
  /** Kills all remaining processes, at the end of a failed test. */
  destroy(): Promise<void>;
  lastLog(lines?: number): string;
}

interface Supervisor {
  readonly child: ChildProcess;
  readonly exited: Promise<[number | null, NodeJS.Signals | null]>;
}

/**
 * Returns the environment in which the harness runs `tributary`. One import process unless a test sets more, because
 * each start takes time.
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

/** Runs one command of the program and returns its JSON result. Throws with its standard error. */
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
  const printResult = (value: unknown): void => void (answered = value);
  await runCommandHere(statusCommand, ['--data', dataDir], {
    environment,
    entry,
    printResult,
    print: () => undefined,
    printMessage: () => undefined,
    stop: signal,
    force: signal,
  });
  // as a reader of its standard output gets it
  return JSON.parse(JSON.stringify(answered)) as Record<string, unknown>;
}

function waitUntilGone(pids: readonly number[], what: string): Promise<void> {
  return waitFor(`${what} has exited`, () => !pids.some(isAlive), goneMs);
}

/**
 * Starts the service on free ports, which change with each start, and waits until it reports that it is ready. The
 * program must be built.
 */
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
    // Other code of a failed test may be about to start it again.
    if (destroyed) throw new Error('the service was destroyed');
    const log = openSync(logFile, 'a');
    const { words: more = [] } = options;
    const ports = more.includes('--s2s-port') ? [] : ['--s2s-port', await nextPort(), '--api-port', await nextPort()];
    const words = ['start', '--data', dataDir, ...ports, ...more];
    const [command, ...before] = [...under, process.execPath];
    const child = spawn(command, [...before, program, ...words], {
      env: environmentOf(settings),
      stdio: ['ignore', 'pipe', log],
    });
    closeSync(log);
    const exited = once(child, 'exit') as Supervisor['exited'];
    // set before it is ready, so that a test can kill it during its start
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
    await waitFor('every process of the service has exited', () => seen.alive().length === 0, goneMs);
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
      if (role === 'supervisor') await within('the supervisor has exited', supervisor.exited);
      return pid;
    },
    async startAgain(changed) {
      settings = { ...settings, ...changed };
      await start();
    },
    async freeze() {
      // the supervisor first: after it only processes that were already starting can appear
      const stopped = new Set<number>();
      for (let before = -1; stopped.size > before;) {
        before = stopped.size;
        for (const pid of listTree(pidOf())) if (!stopped.has(pid) && signalProcess(pid, 'SIGSTOP')) stopped.add(pid);
        await waitFor('every process is suspended', () => [...stopped].every(isStopped));
      }
      noteTree();
    },
    async killAll() {
      await killSeen();
      await within('the supervisor has exited', supervisor.exited);
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
