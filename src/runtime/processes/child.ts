import cluster from 'node:cluster';
import { fork, type ChildProcess } from 'node:child_process';
import { AppError } from '../errors.ts';
import { parseRoleMessage, type SupervisorMessage } from './role-process.ts';

/**
 * A child whose start failed, or that is stopped while it starts, has nothing to drain: the grace before it is killed,
 * milliseconds.
 */
const abandonedMs = 2000;

/** How a process ended. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A running child process, whatever it runs. */
export interface RunningChild {
  readonly pid: number;
  readonly exited: Promise<Exit>;
  /** Asks it to drain and waits until it is gone; after `graceMs` it is killed. */
  stop(graceMs: number): Promise<void>;
  kill(): void;
}

/** A forked role: a Node process of this program that talks over IPC. */
export interface RoleChild extends RunningChild {
  readonly port: number | undefined;
  /** Sends a message, or drops it while an earlier one is on its way: none pile up before a stalled child. */
  send(message: SupervisorMessage): void;
}

export interface ForkOptions {
  /** The program's entry file; the child runs `node <entry> role <role>`. */
  readonly entry: string;
  readonly role: string;
  readonly environment: NodeJS.ProcessEnv;
  /** Forked as a cluster worker, so that several of them share one listening port. */
  readonly shared: boolean;
  /** How long it may take until it is ready, milliseconds. */
  readonly readyMs: number;
  /** Aborted when the start is no longer wanted. */
  readonly signal: AbortSignal;
  readonly onReport: (report: { facts: Readonly<Record<string, unknown>> }) => void;
  readonly onMetrics: (metrics: unknown[]) => void;
}

function spawnRole(options: ForkOptions): ChildProcess {
  const args = ['role', options.role];
  if (!options.shared) return fork(options.entry, args, { env: options.environment });
  // The workers accept for themselves. By the default policy this process accepts and hands the connections over, and
  // one that was on its way to a worker that died stays open here, with nobody to answer it, while this process runs.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  cluster.setupPrimary({ exec: options.entry, args, silent: false });
  return cluster.fork(options.environment).process;
}

/** Watches a child to its end. Must be called in the tick that spawned it, so that no exit is missed. */
export function watchExit(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    child.once('error', () => {
      // A failed spawn has no pid and never emits exit.
      if (child.pid === undefined) resolve({ code: 1, signal: null });
    });
  });
}

/** Ends a child: SIGTERM, then SIGKILL when it has not gone within `graceMs`. */
export async function stopChild(child: ChildProcess, exited: Promise<Exit>, graceMs: number): Promise<void> {
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), graceMs);
  await exited;
  clearTimeout(timer);
}

function stoppedError(role: string): AppError {
  return new AppError('stopping', `${role} was stopped while it started`);
}

/**
 * Waits until a child says that it is ready, and gives the port that it listens on. A child that says what went wrong,
 * says nothing in time, or is not wanted any more is ended; the error is thrown when it is gone. Its reports are handed
 * on for as long as it runs.
 */
async function awaitReady(
  child: ChildProcess,
  exited: Promise<Exit>,
  options: ForkOptions,
): Promise<number | undefined> {
  const { role, readyMs, signal: unwanted } = options;
  const logHint = `Its log lines ("role":"${role}")`;
  return await new Promise<number | undefined>((resolve, reject) => {
    let failure: AppError | undefined;
    const onLate = (): void =>
      giveUp(
        new AppError('start_failed', `${role} was not ready after ${readyMs} ms`, {
          hint: `${logHint} say how far it came; a slow disk is the usual cause. Start again.`,
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
            hint: `${logHint}, and its own words before them, say why.`,
          }),
      );
    });
  });
}

/** The way of messages to a child: one at a time; of those that come meanwhile, the newest of each type waits. */
function createSender(child: ChildProcess): (message: SupervisorMessage) => void {
  let sending = false;
  /** Of each type the newest: who tells a thing once must not have it dropped. */
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
 * Starts a role's process and waits until it says that it is ready. Throws what the child says went wrong,
 * `start_failed` when it ends or stays silent, `stopping` when the signal aborts first; always after the child is gone,
 * so that the next one finds its locks and ports free.
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
