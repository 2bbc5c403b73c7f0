import cluster from 'node:cluster';
import { fork, type ChildProcess } from 'node:child_process';
import { AppError } from '../errors.ts';
import { parseRoleMessage, type SupervisorMessage } from './role-process.ts';

/** Grace before a child that is abandoned during its start is killed, ms: it has nothing to drain. */
const abandonedMs = 2000;

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface RunningChild {
  readonly pid: number;
  readonly exited: Promise<Exit>;
  /** Asks the child to drain and waits for its exit; kills it after `graceMs`. */
  stop(graceMs: number): Promise<void>;
  kill(): void;
}

/** A forked Node process of this program, connected by IPC. */
export interface RoleChild extends RunningChild {
  readonly port: number | undefined;
  /** Sends a message, or queues it while an earlier one is in flight; only the newest of each type is queued. */
  send(message: SupervisorMessage): void;
}

export interface ForkOptions {
  /** The program's entry file; the child runs `node <entry> role <role>`. */
  readonly entry: string;
  /** Name of the process, which its log lines have as `process`. */
  readonly name: string;
  readonly role: string;
  readonly environment: NodeJS.ProcessEnv;
  /** Whether it is forked as a cluster worker, so that several share one port. */
  readonly shared: boolean;
  /** Timeout of the start, ms. */
  readonly readyMs: number;
  readonly signal: AbortSignal;
  readonly onReport: (report: { facts: Readonly<Record<string, unknown>> }) => void;
  readonly onMetrics: (metrics: unknown[]) => void;
}

function spawnRole(options: ForkOptions): ChildProcess {
  const args = ['role', options.role];
  const env = { ...options.environment, TRIBUTARY_PROCESS: options.name };
  if (!options.shared) return fork(options.entry, args, { env });
  // The workers accept connections themselves. By the default policy this process would accept and distribute them, and
  // a connection in flight to a worker that died would stay open here without a response.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  cluster.setupPrimary({ exec: options.entry, args, silent: false });
  return cluster.fork(env).process;
}

/** Resolves when a child has exited. Must be called in the tick that spawned it, so that no exit is missed. */
export function watchExit(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    child.once('error', () => {
      // A failed spawn has no pid and never emits exit.
      if (child.pid === undefined) resolve({ code: 1, signal: null });
    });
  });
}

/** Ends a child: SIGTERM, then SIGKILL after `graceMs`. */
export async function stopChild(child: ChildProcess, exited: Promise<Exit>, graceMs: number): Promise<void> {
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), graceMs);
  await exited;
  clearTimeout(timer);
}

function stoppedError(role: string): AppError {
  return new AppError('stopping', `${role} was stopped while it started`);
}

/** Waits for a child to be ready and returns its port. Otherwise ends the child and throws. Forwards its reports. */
async function awaitReady(
  child: ChildProcess,
  exited: Promise<Exit>,
  options: ForkOptions,
): Promise<number | undefined> {
  const { name, role, readyMs, signal: unwanted } = options;
  const logHint = `Check its log lines ("process":"${name}")`;
  return await new Promise<number | undefined>((resolve, reject) => {
    let failure: AppError | undefined;
    const onLate = (): void =>
      giveUp(
        new AppError('start_failed', `${role} was not ready after ${readyMs} ms`, {
          hint: `${logHint}. A slow disk is the usual cause.`,
        }),
      );
    const timer = setTimeout(onLate, readyMs);
    const onUnwanted = (): void => giveUp(stoppedError(role));
    unwanted.addEventListener('abort', onUnwanted, { once: true });
    const settle = (): void => {
      clearTimeout(timer);
      unwanted.removeEventListener('abort', onUnwanted);
    };
    const giveUp = (error: AppError): void => {
      settle();
      failure = error;
      void stopChild(child, exited, abandonedMs);
    };
    child.on('message', (value) => {
      const message = parseRoleMessage(value);
      switch (message?.type) {
        case 'ready':
          if (failure !== undefined) break;
          settle();
          resolve(message.port);
          break;
        case 'failed':
          if (failure === undefined)
            giveUp(
              new AppError(message.code, message.message, message.hint === undefined ? {} : { hint: message.hint }),
            );
          break;
        case 'report':
          options.onReport(message);
          break;
        case 'metrics':
          options.onMetrics(message.metrics);
          break;
        case undefined:
          break;
        default:
          message satisfies never;
      }
    });
    void exited.then(({ code, signal }) => {
      settle();
      reject(
        failure ??
          new AppError('start_failed', `${role} ended while starting (${signal ?? `exit ${code}`})`, {
            hint: `${logHint} and the lines before them.`,
          }),
      );
    });
  });
}

function createSender(child: ChildProcess): (message: SupervisorMessage) => void {
  let sending = false;
  /** The newest message of each type. */
  const waiting = new Map<string, SupervisorMessage>();
  function send(message: SupervisorMessage): void {
    if (!child.connected) return;
    sending = true;
    child.send(message, () => {
      sending = false;
      const [next] = waiting.values();
      if (next === undefined) return;
      waiting.delete(next.type);
      send(next);
    });
  }
  return (message) => {
    if (sending) waiting.set(message.type, message);
    else send(message);
  };
}

/**
 * Starts a role's process and waits until it is ready. Errors: the child's; `start_failed` after an exit or timeout;
 * `stopping` after an abort. Throws after the child's exit, which frees its locks and ports.
 */
export async function forkRole(options: ForkOptions): Promise<RoleChild> {
  if (options.signal.aborted) throw stoppedError(options.role);
  const child = spawnRole(options);
  const exited = watchExit(child);
  const port = await awaitReady(child, exited, options);
  return {
    pid: child.pid ?? 0,
    port,
    exited,
    send: createSender(child),
    stop: (graceMs) => stopChild(child, exited, graceMs),
    kill: () => void child.kill('SIGKILL'),
  };
}
