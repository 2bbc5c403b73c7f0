import { fork } from 'node:child_process';
import path from 'node:path';
import { datasetsEnvironment, packageRoot } from '../../runtime/files/package-files.ts';
import { connectionOfChild } from '../../runtime/store/open-store.ts';
import {
  parseDataOutcome,
  parseDryRunOutcome,
  parseWorkerMessage,
  type DataOutcome,
  type DataPlan,
  type DryRunOutcome,
  type DryRunPlan,
  type WorkerOutcome,
  type WorkerPhase,
  type WorkerPlan,
} from './worker-messages.ts';

/** The end of a worker that sent no outcome. `killed`: from outside, by an operator or the kernel's OOM killer. */
export type WorkerExit =
  | { readonly kind: 'crashed' | 'killed'; readonly error: string }
  | { readonly kind: 'timed_out' | 'aborted' };

export type AttemptOutcome = WorkerOutcome | WorkerExit;
export type DryRunEnd = DryRunOutcome | WorkerExit;
export type DataEnd = DataOutcome | WorkerExit;

interface InteractiveWorkerOptions {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export interface WorkerOptions extends InteractiveWorkerOptions {
  readonly onPercent: (percent: number) => void;
  /** Called when a phase begins. */
  readonly onPhase?: ((phase: WorkerPhase) => void) | undefined;
}

/** Each settles when its worker has exited, so that nothing reads or writes for it afterwards. Never throws. */
export type RunAttempt = (plan: WorkerPlan, options: WorkerOptions) => Promise<AttemptOutcome>;
export type RunDryRun = (plan: DryRunPlan, options: InteractiveWorkerOptions) => Promise<DryRunEnd>;
export type RunDataQuery = (plan: DataPlan, options: InteractiveWorkerOptions) => Promise<DataEnd>;

/** The compiled entry: workers run from `dist`, also if the service runs from `src`. */
const workerEntry = path.join(packageRoot, 'dist', 'export', 'worker', 'worker.js');
/** Signals from outside; a worker causes SIGSEGV or SIGABRT itself. */
const foreignSignals: ReadonlySet<string> = new Set(['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP']);
/** JavaScript's memory in a worker. The data is in DuckDB's memory and in buffers. */
const heapMb = 512;
/** Threads of libuv in addition to one per engine, which waits for its query: four compress, the others do I/O. */
const fileThreads = 6;

/** Sends a plan to a new process and waits until it exits. `readOutcome` parses its messages. Never throws. */
function forkWorker<Outcome>(
  plan: WorkerPlan | DryRunPlan | DataPlan,
  { timeoutMs, signal }: InteractiveWorkerOptions,
  readOutcome: (message: unknown) => Outcome | undefined,
): Promise<Outcome | WorkerExit> {
  if (signal.aborted) return Promise.resolve({ kind: 'aborted' });
  const { options: connection, environment } = connectionOfChild();
  return new Promise((resolve) => {
    // The worker gets no other setting and no secret of the service, but those of a bucket that it reads.
    const child = fork(workerEntry, [], {
      env: {
        TZ: 'UTC',
        UV_THREADPOOL_SIZE: String(plan.limits.threads + fileThreads),
        ...datasetsEnvironment(),
        ...environment,
      },
      execArgv: [`--max-old-space-size=${heapMb}`],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    let outcome: Outcome | WorkerExit | undefined;
    const finish = (end: Outcome | WorkerExit): void => {
      outcome ??= end;
      child.kill('SIGKILL');
    };
    const timer = setTimeout(() => finish({ kind: 'timed_out' }), timeoutMs);
    const abort = (): void => finish({ kind: 'aborted' });
    const end = (how: string): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      const kind = foreignSignals.has(how) ? 'killed' : 'crashed';
      resolve(outcome ?? { kind, error: `export worker exited: ${how}` });
    };
    signal.addEventListener('abort', abort, { once: true });
    child.on('message', (value) => {
      const received = readOutcome(value);
      if (received !== undefined) finish(received);
    });
    child.once('error', (error) => {
      // A failed spawn has no pid and never emits exit.
      if (child.pid === undefined) end(error.message);
    });
    child.once('exit', (code, exitSignal) => end(exitSignal ?? `exit code ${code}`));
    child.send({ ...plan, connection }, () => undefined);
  });
}

export const runInWorker: RunAttempt = (plan, options) =>
  forkWorker(plan, options, (value) => {
    const message = parseWorkerMessage(value);
    if (message?.kind === 'progress') options.onPercent(message.percent);
    else if (message?.kind === 'phase') options.onPhase?.(message.phase);
    else return message;
    return undefined;
  });

export const dryRunInWorker: RunDryRun = (plan, options) => forkWorker(plan, options, parseDryRunOutcome);

export const queryInWorker: RunDataQuery = (plan, options) => forkWorker(plan, options, parseDataOutcome);
