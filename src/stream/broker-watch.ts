import { describeError } from '../runtime/errors.ts';
import { readFreeBytes } from '../runtime/files/disk-watch.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { createBackoff } from '../runtime/async/retry.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import type { BrokerHealth } from './broker-monitor.ts';
import type { NatsServer } from './nats-server.ts';

/**
 * Watches the embedded nats-server, and restarts it where it cannot recover by itself: a stream whose write has failed
 * once, most often because its disk was full, takes no event until the server restarts. The watch ends such a server as
 * soon as there is room to write; its supervisor starts it again.
 *
 * A server that answers nothing is only reported. It may be stalled for a moment, by its disk or by an operator, and
 * then goes on where it was; what it has acknowledged is safe either way.
 */
export interface BrokerWatch extends Stoppable {
  /** What is wrong with the server now. */
  problems(): readonly Problem[];
  /** How often the watch has ended a server, for another to be started. */
  restarts(): number;
}

interface BrokerWatchOptions {
  /** Folder of the server's store. */
  readonly folder: string;
  /** Free space at which events are taken; a frozen server is restarted when there is so much again. */
  readonly reserveBytes: number;
  readonly logger: Logger;
}

/** Between checks while the server is well, and while it is not, milliseconds: each wakes it and this process. */
const checkEveryMs = { well: 3000, unwell: 1000 } as const;
const answerMs = 2000;
/** Consecutive bad health checks before the server counts as unhealthy; one is normal under load. */
const unhealthyChecks = 2;
/** A restart writes the configuration and the stream's index: with less room it would not come up. */
const minRoomBytes = 8 * 1024 * 1024;
/**
 * A server that freezes again soon after a restart is restarted less and less often, so that it can be looked at; never
 * so late that a disk which has filled up again and again keeps events out for 30 s after it has room.
 */
const firstBackoffMs = 2000;
const maxBackoffMs = 15_000;
/** A server that was healthy for this long is restarted at once again. */
const lastingMs = 60_000;

const silent: Problem = {
  code: 'broker_hung',
  what: 'nats-server runs and answers nothing',
  todo: "Nothing, if its disk or the machine is stalled: it goes on where it was. Otherwise end the nats-server process with 'kill -9': it is started again, and nothing acknowledged is lost.",
};
const frozenTodo =
  'Free space on the disk of its store, or mend that disk: nats-server is restarted by itself once it can write, and what was acknowledged is safe.';

/** Starts watching the server that `current` names at the moment; undefined while there is none. */
export function startBrokerWatch(current: () => NatsServer | undefined, options: BrokerWatchOptions): BrokerWatch {
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
    problem = { code: 'broker_frozen', what: `nats-server cannot write to the stream: ${error}`, todo: frozenTodo };
    const nowMs = performance.now();
    if (nowMs < nextRestartMs) return;
    const freeBytes = await readFreeBytes(folder);
    if (freeBytes < roomBytes || signal.aborted) return;
    nextRestartMs = nowMs + backoff.currentMs();
    backoff.grow();
    restarts += 1;
    logger.error(
      { error, freeBytes, restarts, pid: server.pid },
      'nats-server cannot write and its disk has room: it is restarted',
    );
    server.kill();
    await server.exited;
    // The next server is judged by its own health checks.
    badChecks = 0;
  }

  async function check(signal: AbortSignal): Promise<void> {
    const server = current();
    const health = server === undefined ? undefined : await server.monitor.readHealth(answerMs);
    if (server === undefined || health === undefined || health.state === 'well') {
      // A server that is away is reported by its supervisor.
      problem = undefined;
      badChecks = 0;
      lastState = 'well';
      wellSinceMs = health === undefined ? undefined : (wellSinceMs ?? performance.now());
      if (wellSinceMs !== undefined && performance.now() - wellSinceMs >= lastingMs) backoff.reset();
      return;
    }
    wellSinceMs = undefined;
    // One that has just gone on after a stall is not ended for a single bad answer.
    badChecks = health.state === lastState ? badChecks + 1 : 1;
    lastState = health.state;
    if (badChecks < unhealthyChecks) return;
    if (health.state === 'unwell') await restart(server, health.error, signal);
    else problem = silent;
  }

  const loop = startPollLoop(check, {
    everyMs: () => checkEveryMs[lastState === 'well' ? 'well' : 'unwell'],
    onError: (error) => logger.warn({ error: describeError(error) }, 'nats-server cannot be watched'),
  });

  return {
    problems: () => (problem === undefined ? [] : [problem]),
    restarts: () => restarts,
    stop: () => loop.stop(),
  };
}
