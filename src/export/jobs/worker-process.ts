import { fork } from 'node:child_process';
import path from 'node:path';
import { datasetsEnvironment, packageRoot } from '../../runtime/files/package-files.ts';
import { parseDataOutcome, type DataOutcome, type DataPlan } from './data-messages.ts';
import { parseLookOutcome, type LookOutcome, type LookPlan } from './look-messages.ts';
import { parseWorkerMessage, type WorkerOutcome, type WorkerPlan } from './worker-messages.ts';

/** What became of a worker instead of its own outcome. */
export type WorkerLoss =
  | { readonly kind: 'crashed'; readonly error: string }
  /** From outside: by an operator, or by the kernel when memory ran out. */
  | { readonly kind: 'killed'; readonly error: string }
  | { readonly kind: 'timed_out' }
  | { readonly kind: 'aborted' };

/** How an attempt ended, seen from outside. */
export type AttemptOutcome = WorkerOutcome | WorkerLoss;
/** How a look ended, seen from outside. */
export type LookEnd = LookOutcome | WorkerLoss;
/** How a question ended, likewise. */
export type DataEnd = DataOutcome | WorkerLoss;

export interface LookOptions {
  /** Wall-clock limit of the worker, milliseconds. */
  readonly timeoutMs: number;
  /** Ends the worker at once. */
  readonly signal: AbortSignal;
}

export interface WorkerOptions extends LookOptions {
  readonly onPercent: (percent: number) => void;
}

/** The compiled entry: workers run from `dist`, also when the rest runs from `src`. */
const workerEntry = path.join(packageRoot, 'dist', 'export', 'worker', 'worker.js');
/** Signals that come from outside, unlike SIGSEGV or SIGABRT, which a worker causes itself. */
const foreignSignals: ReadonlySet<string> = new Set(['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP']);
/** JavaScript's own memory in a worker; the data is in DuckDB's and in buffers. */
const heapMb = 512;

/** Threads of libuv beside one for each engine, which waits for its query: four compress, the others read and write. */
const fileThreads = 6;

/** Runs an attempt, and settles when nothing writes into its folder any more. Never throws. */
export type RunAttempt = (plan: WorkerPlan, options: WorkerOptions) => Promise<AttemptOutcome>;
/** Looks at an export, and settles when nothing reads for it any more. Never throws. */
export type RunLook = (plan: LookPlan, options: LookOptions) => Promise<LookEnd>;
/** Answers a question after data, likewise. */
export type RunQuestion = (plan: DataPlan, options: LookOptions) => Promise<DataEnd>;

/**
 * Gives a plan to a process of its own and waits until that process is gone. `readOutcome` finds the outcome among its
 * messages. Never throws.
 */
function forkWorker<Outcome>(
  plan: WorkerPlan | LookPlan | DataPlan,
  { timeoutMs, signal }: LookOptions,
  readOutcome: (message: unknown) => Outcome | undefined,
): Promise<Outcome | WorkerLoss> {
  if (signal.aborted) return Promise.resolve({ kind: 'aborted' });
  return new Promise((resolve) => {
    // The worker needs none of the service's other settings and secrets.
    const child = fork(workerEntry, [], {
      env: { TZ: 'UTC', UV_THREADPOOL_SIZE: String(plan.limits.threads + fileThreads), ...datasetsEnvironment() },
      execArgv: [`--max-old-space-size=${heapMb}`],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    let outcome: Outcome | WorkerLoss | undefined;
    const finish = (end: Outcome | WorkerLoss): void => {
      outcome ??= end;
      child.kill('SIGKILL');
    };
    const timer = setTimeout(() => finish({ kind: 'timed_out' }), timeoutMs);
    const abort = (): void => finish({ kind: 'aborted' });
    const end = (how: string): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      resolve(
        outcome ?? { kind: foreignSignals.has(how) ? 'killed' : 'crashed', error: `the export worker ended: ${how}` },
      );
    };
    signal.addEventListener('abort', abort, { once: true });
    child.on('message', (value) => {
      const told = readOutcome(value);
      if (told !== undefined) finish(told);
    });
    child.once('error', (error) => {
      // A failed spawn has no pid and never emits exit.
      if (child.pid === undefined) end(error.message);
    });
    child.once('exit', (code, exitSignal) => end(exitSignal ?? `exit code ${code}`));
    child.send(plan, () => undefined);
  });
}

/**
 * Runs an attempt in a process of its own and waits until that process is gone, so that nothing writes into the
 * attempt's folder afterwards. Never throws.
 */
export function runInWorker(plan: WorkerPlan, options: WorkerOptions): Promise<AttemptOutcome> {
  return forkWorker(plan, options, (value) => {
    const message = parseWorkerMessage(value);
    if (message?.kind !== 'progress') return message;
    options.onPercent(message.percent);
    return undefined;
  });
}

/** Looks at an export in a process of its own, and waits until that process is gone. Never throws. */
export function lookInWorker(plan: LookPlan, options: LookOptions): Promise<LookEnd> {
  return forkWorker(plan, options, parseLookOutcome);
}

/** Answers a question after data in a process of its own, and waits until that process is gone. Never throws. */
export function answerInWorker(plan: DataPlan, options: LookOptions): Promise<DataEnd> {
  return forkWorker(plan, options, parseDataOutcome);
}
