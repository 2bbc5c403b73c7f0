import { describeError } from '../runtime/errors.ts';
import { readFreeBytes } from '../runtime/files/disk-watch.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { createBackoff } from '../runtime/async/retry.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import type { BrokerHealth } from './broker-monitor.ts';
import type { NatsServer } from './nats-server.ts';

interface BrokerWatchOptions {
  readonly folder: string;
  /** Free space at which a frozen server is restarted, bytes. */
  readonly reserveBytes: number;
  readonly logger: Logger;
}

/** Delay between checks while the server is well, and while it is not, ms. */
const checkEveryMs = { well: 3000, unwell: 1000 } as const;
const answerMs = 2000;
/** Consecutive bad health checks of an unhealthy server; a single one is normal under load. */
const unhealthyChecks = 2;
/** Space that a restart needs for the configuration and the stream's index, bytes. */
const minRoomBytes = 8 * 1024 * 1024;
/** Backoff of restarts, ms: a disk that fills up repeatedly blocks imports for less than 30 s. */
const firstBackoffMs = 2000;
const maxBackoffMs = 15_000;
/** A server that was healthy for this long is restarted at once again, ms. */
const lastingMs = 60_000;

const silent: Problem = {
  code: 'broker_unresponsive',
  message: 'nats-server is unresponsive',
  action:
    "No action needed if this resolves: its disk or the machine may be stalled. Otherwise end the nats-server process with 'kill -9'. It restarts, and no acknowledged event is lost.",
};
const frozenTodo =
  'Free space on the disk of its store, or repair that disk. nats-server restarts when it can write, and acknowledged events are safe.';

export type BrokerWatch = ReturnType<typeof startBrokerWatch>;

/**
 * Watches the embedded nats-server, which `current` returns while it runs. After one failed write, usually on a full
 * disk, a stream accepts no message until a restart: the watch kills the server once there is space. An unresponsive
 * server is only reported: it may be stalled.
 */
export function startBrokerWatch(current: () => NatsServer | undefined, options: BrokerWatchOptions) {
  const { folder, logger } = options;
  const roomBytes = Math.max(options.reserveBytes, minRoomBytes);
  const backoff = createBackoff(firstBackoffMs, maxBackoffMs);
  let problem: Problem | undefined;
  let restarts = 0;
  let badChecks = 0;
  let lastState: BrokerHealth['state'] = 'well';
  let nextRestartMs = 0;
  let wellSinceMs: number | undefined;

  async function restart(server: NatsServer, error: string, signal: AbortSignal): Promise<void> {
    problem = {
      code: 'broker_store_write_failed',
      message: `nats-server cannot write to the stream: ${error}`,
      action: frozenTodo,
    };
    const nowMs = performance.now();
    if (nowMs < nextRestartMs) return;
    const freeBytes = await readFreeBytes(folder);
    if (freeBytes < roomBytes || signal.aborted) return;
    nextRestartMs = nowMs + backoff.currentMs();
    backoff.grow();
    restarts += 1;
    logger.error(
      { error, freeBytes, restarts, pid: server.pid },
      'nats-server cannot write although its disk has free space, restarting it',
    );
    server.kill();
    await server.exited;
    badChecks = 0;
  }

  async function check(signal: AbortSignal): Promise<void> {
    const server = current();
    const health = server === undefined ? undefined : await server.monitor.readHealth(answerMs);
    if (server === undefined || health === undefined || health.state === 'well') {
      // The supervisor reports a server that is away.
      problem = undefined;
      badChecks = 0;
      lastState = 'well';
      wellSinceMs = health === undefined ? undefined : (wellSinceMs ?? performance.now());
      if (wellSinceMs !== undefined && performance.now() - wellSinceMs >= lastingMs) backoff.reset();
      return;
    }
    wellSinceMs = undefined;
    badChecks = health.state === lastState ? badChecks + 1 : 1;
    lastState = health.state;
    if (badChecks < unhealthyChecks) return;
    if (health.state === 'unwell') await restart(server, health.error, signal);
    else problem = silent;
  }

  const loop = startPollLoop(check, {
    everyMs: () => checkEveryMs[lastState === 'well' ? 'well' : 'unwell'],
    onError: (error) => logger.warn({ error: describeError(error) }, 'cannot watch nats-server'),
  });

  return {
    problems: (): readonly Problem[] => (problem === undefined ? [] : [problem]),
    restarts: () => restarts,
    stop: () => loop.stop(),
  };
}
