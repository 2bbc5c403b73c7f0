import { pause } from '../runtime/async/retry.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';
import { findSize } from '../runtime/files/file-checks.ts';
import { readPlain } from '../runtime/files/input-file.ts';
import { hasEnded, isSameProcess } from '../runtime/processes/procfs.ts';
import { readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { dataPaths, type Config } from '../config.ts';
import { defineDataCommand } from './command.ts';

/** The broker and the stream of a data folder. */
export interface BrokerConnection {
  readonly url: string;
  readonly streamName: string;
  /** Whether it is the embedded nats-server, whose store is in the data folder. */
  readonly isOwn: boolean;
}

/** Returns the broker of the running service, or of TRIBUTARY_NATS_URL; undefined if neither is known. */
export function findBroker({ dataDir, natsUrl, streamName }: Config): BrokerConnection | undefined {
  const running = readServiceStates(dataPaths(dataDir).run).find((state) => state.natsUrl !== undefined);
  const url = running?.natsUrl ?? natsUrl;
  if (url === undefined) return undefined;
  const isOwn = running?.processes.some(({ name }) => name === 'nats-server') ?? false;
  return { url, streamName: running?.streamName ?? streamName, isOwn };
}

const startPatienceMs = 120_000;
const startLookEveryMs = 250;
/** Bytes of the end of a log: more than its last line. */
const endBytes = 16_384;

/** A service that is starting. */
interface AwaitedService {
  readonly dataDir: string;
  readonly runFolder: string;
  /** Its process, if known: its exit ends the wait. */
  readonly pid?: number | undefined;
  /** The log of that process. */
  readonly log?: string | undefined;
  readonly signal: AbortSignal;
  readonly note: (line: string) => void;
}

/** Returns the last line of a log. */
async function findLastSentence(log: string): Promise<string | undefined> {
  const size = await findSize(log);
  if (size === undefined) return undefined;
  const pieces: Uint8Array[] = [];
  for await (const piece of readPlain(log, false, Math.max(0, size - endBytes))) pieces.push(piece);
  const lines = Buffer.concat(pieces).toString('utf8').trimEnd().split('\n');
  return lines
    .at(-1)
    ?.replace(/^tributary: /, '')
    .trim();
}

/** Waits for the service on a data folder. Errors: `start_failed`, at once if its process has ended; `stopping`. */
export async function awaitService(awaited: AwaitedService): Promise<ServiceState> {
  const { dataDir, runFolder, pid, log, signal, note } = awaited;
  const waitingSince = performance.now();
  let isNoted = false;
  const logName = log === undefined ? 'the start log' : log;
  for (;;) {
    // Checked before the states are read: a second service exits because the first one runs, which is returned.
    const isOver = pid !== undefined && hasEnded(pid);
    const running = readServiceStates(runFolder).find(({ s2s, api }) => s2s !== undefined && api !== undefined);
    if (running !== undefined) return running;
    const seconds = Math.round((performance.now() - waitingSince) / 1000);
    if (isOver) {
      const why = log === undefined ? undefined : await findLastSentence(log);
      throw new AppError('start_failed', `the service did not start: ${why || `the process ${pid} has ended`}`, {
        hint: `Check ${logName}, then retry the command.`,
      });
    }
    if (signal.aborted)
      throw new AppError('stopping', `interrupted after ${seconds} s: no service runs on ${dataDir} yet`);
    if (performance.now() - waitingSince > startPatienceMs)
      throw new AppError('start_failed', `no service runs on ${dataDir} after ${seconds} s`, {
        hint: `Check ${logName}, or run 'tributary start'.`,
      });
    if (!isNoted)
      note(`tributary: waiting for the service on ${dataDir}${log === undefined ? '' : `, which logs into ${log}`}`);
    isNoted = true;
    await pause(startLookEveryMs, signal);
  }
}

/** Longer than the time after which a service kills its processes, ms. */
const patienceMs = 300_000;
const pollIntervalMs = 100;

/** Sends SIGTERM to a service, if it still runs. Error: `disk`. */
export function askToStop({ pid }: Pick<ServiceState, 'pid'>): void {
  try {
    process.kill(pid, 'SIGTERM');
  } catch (error) {
    if (isSystemError(error, 'ESRCH')) return;
    throw new AppError('disk', `cannot stop the service of pid ${pid}`, {
      cause: error,
      hint: 'Run the command as the user of the service.',
    });
  }
}

export const stopCommand = defineDataCommand({
  name: 'stop',
  summary: 'stop the running service, and wait until it has exited',
  details: ['Sends SIGTERM: acknowledged events are kept. Stop a service of a service manager with that manager.'],
  examples: ['stop', 'stop --data /srv/tributary/data'],
  async run(_given, { config, paths, printResult, printMessage, printProgress, stop }) {
    const services = readServiceStates(paths.run);
    if (services.length === 0) printMessage(`No service runs on ${config.dataDir}.`);
    services.forEach(askToStop);
    const requestedAt = performance.now();
    for (const { pid, processStart, startedAt } of services) {
      while (isSameProcess(pid, processStart)) {
        const seconds = Math.round((performance.now() - requestedAt) / 1000);
        if (stop.aborted || performance.now() - requestedAt > patienceMs)
          throw new AppError('stopping', `the service of pid ${pid} still runs ${seconds} s after SIGTERM`, {
            hint: 'Run the command again to wait longer, or check the log.',
          });
        printProgress?.(`waiting for the service of pid ${pid} to exit, ${seconds} s`);
        await pause(pollIntervalMs, stop);
      }
      printProgress?.('');
      printResult({ stopped: pid, startedAt });
    }
  },
});
