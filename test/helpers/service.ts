import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import type { Random } from '../../src/cli/demo/random.ts';
import { isAlive, listServiceProcesses, listTree, type ProcessRole, type ServiceProcess } from './processes.ts';
import { waitFor } from './wait.ts';

const run = promisify(execFile);
const entry = path.resolve(import.meta.dirname, '../../dist/main.js');
const goneMs = 40_000;

export interface TestServiceOptions {
  /** Created when missing. */
  readonly dataDir: string;
  /** Settings (`TRIBUTARY_...`) beside the harness's own; nothing else of the machine's settings reaches the service. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Further words of `tributary start`. */
  readonly words?: readonly string[];
}

/** The real service, run by its command line as an operator does. */
export interface TestService {
  readonly dataDir: string;
  /** Addresses of the import and the export area; another port after each start. */
  readonly s2s: string;
  readonly api: string;
  /** The supervisor's process id. */
  readonly pid: number;
  /** Runs a command of the program on the same data folder; returns its JSON answer. A failed one throws with its sentence. */
  command(...words: readonly string[]): Promise<Record<string, unknown>>;
  /** The service's processes that run now. */
  processes(): ServiceProcess[];
  /**
   * Kills a process of a role with SIGKILL, a random one where there are several, and waits until it is gone. Returns its
   * id, or undefined when none runs. After the supervisor, `startAgain` brings the service back.
   */
  kill9(role: ProcessRole, random: Random): Promise<number | undefined>;
  /** Starts a service that has ended on the same data folder. */
  startAgain(): Promise<void>;
  /** Drains with SIGTERM; throws when the exit code is not 0, or a process of the service is left. */
  stop(): Promise<void>;
  /** Kills whatever is left, for the end of a failed test. */
  destroy(): Promise<void>;
  /** The end of the service's log. */
  lastLog(lines?: number): string;
}

interface Running {
  readonly child: ChildProcess;
  readonly exited: Promise<[number | null, NodeJS.Signals | null]>;
  readonly s2s: string;
  readonly api: string;
}

/** Runs `tributary` with the harness's environment. */
function environmentOf(settings: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const machine = Object.entries(process.env).filter(([name]) => !name.startsWith('TRIBUTARY_') || name === 'TRIBUTARY_CACHE_DIR');
  return { ...Object.fromEntries(machine), TRIBUTARY_FLUSH_AGE_MS: '500', TRIBUTARY_INGEST_WORKERS: '2', TRIBUTARY_LOG_LEVEL: 'info', ...settings };
}

/** Runs one command of the program and returns its JSON answer. Throws with what it wrote on standard error. */
export async function runCommand(words: readonly string[], settings: Readonly<Record<string, string>> = {}): Promise<Record<string, unknown>> {
  const { stdout } = await run(process.execPath, [entry, ...words], { env: environmentOf(settings) });
  return JSON.parse(stdout) as Record<string, unknown>;
}

function waitUntilGone(pids: readonly number[], what: string): Promise<void> {
  return waitFor(`${what} is gone`, () => !pids.some(isAlive), goneMs);
}

/** Starts the service on free ports and waits until it says that it is ready. The program must have been built. */
export async function startTestService(options: TestServiceOptions): Promise<TestService> {
  if (!existsSync(entry)) throw new Error(`there is no ${entry}: run 'make build' first`);
  const { dataDir, settings = {} } = options;
  mkdirSync(dataDir, { recursive: true });
  const logFile = `${dataDir}.log`;
  const lastLog = (lines = 20): string => readFileSync(logFile, 'utf8').trim().split('\n').slice(-lines).join('\n');
  const seen = new Set<number>();

  const start = async (): Promise<Running> => {
    const log = openSync(logFile, 'a');
    const words = ['start', '--data', dataDir, '--s2s-port', '0', '--api-port', '0', ...(options.words ?? [])];
    const child = spawn(process.execPath, [entry, ...words], { env: environmentOf(settings), stdio: ['ignore', 'pipe', log] });
    closeSync(log);
    const exited = once(child, 'exit') as Running['exited'];
    if (child.stdout === null) throw new Error('the service has no standard output');
    const lines = createInterface({ input: child.stdout });
    const first = await Promise.race([once(lines, 'line') as Promise<[string]>, exited.then(() => undefined)]);
    if (first === undefined) throw new Error(`the service did not start; its log ends:\n${lastLog()}`);
    const ready = JSON.parse(first[0]) as { ready: boolean; s2s: string; api: string };
    return { child, exited, s2s: ready.s2s, api: ready.api };
  };
  let running = await start();
  const pidOf = (): number => running.child.pid ?? 0;

  return {
    dataDir,
    get s2s() {
      return running.s2s;
    },
    get api() {
      return running.api;
    },
    get pid() {
      return pidOf();
    },
    command: (...words) => runCommand([...words, '--data', dataDir], settings),
    processes: () => listServiceProcesses(pidOf()),
    async kill9(role, random) {
      for (const pid of listTree(pidOf())) seen.add(pid);
      const candidates = listServiceProcesses(pidOf()).filter((candidate) => candidate.role === role);
      if (candidates.length === 0) return undefined;
      const { pid } = random.pick(candidates);
      process.kill(pid, 'SIGKILL');
      await waitUntilGone([pid], role);
      if (role === 'supervisor') await running.exited;
      return pid;
    },
    async startAgain() {
      running = await start();
    },
    async stop() {
      const tree = listTree(pidOf());
      running.child.kill('SIGTERM');
      const [code, signal] = await running.exited;
      if (code !== 0) throw new Error(`the service ended with ${signal ?? `exit code ${code}`}; its log ends:\n${lastLog()}`);
      await waitUntilGone(tree, 'every process of the service');
    },
    async destroy() {
      const pids = [...seen, ...listTree(pidOf())];
      for (const pid of pids.filter(isAlive)) {
        try {
          process.kill(pid, 'SIGKILL');
        } catch {
          // it was faster
        }
      }
      await waitUntilGone(pids, 'every process of the service');
    },
    lastLog,
  };
}
