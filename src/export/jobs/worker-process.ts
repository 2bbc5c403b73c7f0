import { fork } from 'node:child_process';
import path from 'node:path';
import { packageRoot } from '../../runtime/files/package-files.ts';
import { parseWorkerMessage, type WorkerOutcome, type WorkerPlan } from './worker-messages.ts';

/** How an attempt ended, seen from outside: the worker's own outcome, or what became of it instead. */
export type AttemptOutcome =
  | WorkerOutcome
  | { readonly kind: 'crashed'; readonly error: string }
  /** From outside: by an operator, or by the kernel when memory ran out. */
  | { readonly kind: 'killed'; readonly error: string }
  | { readonly kind: 'timed_out' }
  | { readonly kind: 'aborted' };

export interface WorkerOptions {
  /** Wall-clock limit of an attempt, milliseconds. */
  readonly timeoutMs: number;
  readonly onPercent: (percent: number) => void;
  /** Ends the worker at once. */
  readonly signal: AbortSignal;
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

/**
 * Runs an attempt in a process of its own and waits until that process is gone, so that nothing writes into the
 * attempt's folder afterwards. Never throws.
 */
export function runInWorker(plan: WorkerPlan, options: WorkerOptions): Promise<AttemptOutcome> {
  if (options.signal.aborted) return Promise.resolve({ kind: 'aborted' });
  return new Promise((resolve) => {
    // An empty environment: the worker needs none of the service's settings and secrets.
    const child = fork(workerEntry, [], {
      env: { TZ: 'UTC', UV_THREADPOOL_SIZE: String(plan.limits.threads + fileThreads) },
      execArgv: [`--max-old-space-size=${heapMb}`],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    let outcome: AttemptOutcome | undefined;
    const finish = (end: AttemptOutcome): void => {
      outcome ??= end;
      child.kill('SIGKILL');
    };
    const timer = setTimeout(() => finish({ kind: 'timed_out' }), options.timeoutMs);
    const abort = (): void => finish({ kind: 'aborted' });
    const end = (how: string): void => {
      clearTimeout(timer);
      options.signal.removeEventListener('abort', abort);
      resolve(
        outcome ?? { kind: foreignSignals.has(how) ? 'killed' : 'crashed', error: `the export worker ended: ${how}` },
      );
    };
    options.signal.addEventListener('abort', abort, { once: true });
    child.on('message', (value) => {
      const message = parseWorkerMessage(value);
      if (message === undefined) return;
      if (message.kind === 'progress') options.onPercent(message.percent);
      else finish(message);
    });
    child.once('error', (error) => {
      // A failed spawn has no pid and never emits exit.
      if (child.pid === undefined) end(error.message);
    });
    child.once('exit', (code, signal) => end(signal ?? `exit code ${code}`));
    child.send(plan, () => undefined);
  });
}
