import cluster from 'node:cluster';
import { fork, type ChildProcess } from 'node:child_process';
import { AppError } from '../errors.ts';
import { parseRoleMessage, type SupervisorMessage } from './role-messages.ts';

/**
 * A child whose start failed, or that is told to stop while it starts, has nothing to drain: it gets this long,
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
  /**
   * Sends news; drops them while earlier ones are still on their way, so that they do not pile up before a stalled
   * child.
   */
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
  readonly onReport: (report: { metrics: unknown[]; facts: Readonly<Record<string, unknown>> }) => void;
}

function spawnRole(options: ForkOptions): ChildProcess {
  const args = ['role', options.role];
  if (!options.shared) return fork(options.entry, args, { env: options.environment });
  // The workers accept for themselves. By the default policy this process accepts and hands the connections over, and
  // one that
  // was on its way to a worker that died stays open here, with nobody to answer it, for as long as this process runs.
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

/**
 * Starts a role's process and waits until it says that it is ready. Throws what the child says went wrong,
 * `start_failed` when it ends or stays silent, `stopping` when the signal aborts first; always after the child is gone,
 * so that the next one finds its locks and ports free.
 */
export async function forkRole(options: ForkOptions): Promise<RoleChild> {
  const { signal: unwanted } = options;
  const stopped = (): AppError => new AppError('stopping', `${options.role} was stopped while it started`);
  if (unwanted.aborted) throw stopped();
  const child = spawnRole(options);
  const exited = watchExit(child);

  const port = await new Promise<number | undefined>((resolve, reject) => {
    let failure: AppError | undefined;
    const timer = setTimeout(
      () =>
        giveUp(
          new AppError('start_failed', `${options.role} was not ready after ${options.readyMs} ms`, {
            hint: `Its log lines ("role":"${options.role}") say how far it came; a slow disk is the usual cause. Start again.`,
          }),
        ),
      options.readyMs,
    );
    const abandon = (): void => giveUp(stopped());
    unwanted.addEventListener('abort', abandon, { once: true });
    const settle = (): void => {
      clearTimeout(timer);
      unwanted.removeEventListener('abort', abandon);
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
          new AppError('start_failed', `${options.role} ended while starting (${signal ?? `exit ${code}`})`, {
            hint: `Its log lines ("role":"${options.role}"), and its own words before them, say why.`,
          }),
      );
    });
  });

  let sending = false;
  function send(message: SupervisorMessage): void {
    if (sending || !child.connected) return;
    sending = true;
    child.send(message, () => {
      sending = false;
    });
  }

  return {
    pid: child.pid ?? 0,
    port,
    exited,
    send,
    stop: (graceMs) => stopChild(child, exited, graceMs),
    kill: () => void child.kill('SIGKILL'),
  };
}
