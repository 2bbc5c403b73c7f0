/**
 * Hosts: a record per host that shares a store, for `tributary status` and for the check of versions.
 *
 * In: `hosts/ID.json`, rewritten every few seconds with a new beat. The id is in the scratch folder: a restart keeps it.
 * Invariant: running hosts have different ids. A copied folder gets a new one if its file shows the copy; otherwise the
 * earlier of two hosts with one id finds another session in its record, and takes a new id.
 * A reader decides by the beats that it observes whether a host is alive: clocks of hosts are never compared.
 * Crash: the record stays. A host that has observed no change for a day removes it.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import path from 'node:path';
import { withTimeout } from '../async/in-parallel.ts';
import { startPollLoop, type PollLoop } from '../async/poll-loop.ts';
import { monotonicClock, type MonotonicClock } from '../clock.ts';
import { AppError, describeError } from '../errors.ts';
import { membersOf } from '../files/checksummed-json.ts';
import { makeFolderSync } from '../files/make-folder.ts';
import { findWithId, writeWithId } from '../files/open-file.ts';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import type { ObjectStore } from './object-store.ts';
import { createRecords, type RecordKind, type Records } from './records.ts';
import { isCount, isText, listOf, matching, optional, shapeOf } from './shape.ts';
import { createWriteObserver, isWriterAlive } from './watch.ts';

export interface HostDescription {
  /** The hostname. */
  readonly name: string;
  readonly roles: readonly string[];
  /** Version of the program. */
  readonly program: string;
  /** Id of the stream that the host uses, once it is known. */
  readonly stream?: string;
  /** Time of the start by the host's clock, ISO 8601. */
  readonly startedAt: string;
}

interface HostRecord extends HostDescription {
  readonly id: string;
  /** Id of the process that writes the record. */
  readonly session: string;
  readonly beat: number;
}

export interface Host extends HostDescription {
  readonly id: string;
  /** Undefined until this process has observed the host for long enough: two lists within 8 s show one that runs. */
  readonly isAlive: boolean | undefined;
}

export interface Hosts extends Stoppable {
  /** Returns the id of this host, which may change while it runs. */
  id(): string;
  /** Writes the record, and keeps it. Error: `start_failed` (`assertCompatible`), after at most 15 s. */
  start(): Promise<void>;
  /** Adds the stream that this host uses to its record. Error: `start_failed` if another host uses another one. */
  useStream(stream: string): Promise<void>;
  /** Lists all hosts, this one included once it has started. Damaged records are skipped. */
  list(): Promise<readonly Host[]>;
}

export interface HostsOptions {
  /** The local folder that keeps the id. */
  readonly runFolder: string;
  readonly logger: Logger;
  /** Interval of the beats, ms. A host is not alive after three without one. */
  readonly beatMs?: number;
  readonly clock?: MonotonicClock;
}

const prefix = 'hosts/';
const idForm = /^[0-9a-f]{12}$/;
const kind: RecordKind<HostRecord> = {
  isValid: shapeOf<HostRecord>({
    id: matching(idForm),
    name: isText,
    roles: listOf(isText),
    program: isText,
    stream: optional(isText),
    startedAt: isText,
    session: isText,
    beat: isCount,
  }),
  idOf: ({ id }) => prefix + id,
  damaged: { code: 'record_damaged', hint: 'Remove it. A running host writes it again.' },
};
const dayMs = 86_400_000;
/** Time limit of the removal of the record, ms. */
const stopMs = 5000;
/** Beats between two searches for records to remove. */
const beatsPerSearch = 60;

function newHostId(runFolder: string): string {
  const id = randomBytes(6).toString('hex');
  makeFolderSync(runFolder);
  writeWithId(path.join(runFolder, 'host.json'), (file) => JSON.stringify({ id, file }));
  return id;
}

/** Returns the id that a folder has, unless it was copied with its file. */
function findHostId(runFolder: string): string | undefined {
  try {
    const found = findWithId(path.join(runFolder, 'host.json'));
    const { id, file } = membersOf(JSON.parse(found?.text ?? ''));
    return typeof id === 'string' && idForm.test(id) && file === found?.id ? id : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

const minorOf = (program: string): string | undefined => /^\d+\.\d+/.exec(program)?.[0];

/**
 * Throws `start_failed` if a host that is or may be alive has another minor version than this one, or uses another
 * stream, whose events the compactor would not read.
 */
export function assertCompatible(
  { program, stream }: Pick<HostDescription, 'program' | 'stream'>,
  others: readonly Host[],
): void {
  const running = others.filter(({ isAlive }) => isAlive !== false);
  const rivals = running.filter((other) => minorOf(other.program) !== minorOf(program));
  const names = rivals.map((rival) => `${rival.name} (host ${rival.id}, version ${rival.program})`);
  if (rivals.length > 0)
    throw new AppError('start_failed', `version ${program} cannot run at the same time as ${names.join(', ')}`, {
      hint: 'Stop those hosts first, or install their version on this one.',
    });
  const apart = running.find((other) => other.stream !== undefined && stream !== undefined && other.stream !== stream);
  if (apart !== undefined)
    throw new AppError(
      'start_failed',
      `${apart.name} (host ${apart.id}) uses the stream ${apart.stream}, and this host the stream ${stream}`,
      { hint: 'Set TRIBUTARY_NATS_URL and TRIBUTARY_STREAM of both to the same cluster and stream.' },
    );
}

/** Creates the list of the hosts, which removes old records. A host is dead after `silentMs` without a beat. */
function createHostList(records: Records<HostRecord>, session: string, silentMs: number, clock: MonotonicClock) {
  const observer = createWriteObserver(clock);
  return async (): Promise<readonly Host[]> => {
    const { known } = await records.list(prefix);
    observer.retain(known.map(({ id }) => id));
    const hosts: Host[] = [];
    for (const { session: writer, beat, ...host } of known) {
      const seen = observer.observe(host.id, `${writer} ${beat}`);
      if (seen.unchangedMs >= dayMs) await records.remove(prefix + host.id);
      else hosts.push({ ...host, isAlive: writer === session ? true : isWriterAlive(seen, silentMs) });
    }
    return hosts;
  };
}

/** Lists the hosts that have a record, whether they run or not. */
export function listHosts(store: ObjectStore): Promise<readonly Host[]> {
  return createHostList(createRecords(store, kind), '', dayMs, monotonicClock)();
}

const createFailureLog =
  (logger: Logger) =>
  (error: unknown): void =>
    logger.warn({ error: describeError(error) }, 'cannot write host record, will retry');

/** Opens the hosts of a store, without a record of this one. */
export function openHosts(
  store: ObjectStore,
  description: HostDescription,
  { runFolder, logger, beatMs = 5000, clock = monotonicClock }: HostsOptions,
): Hosts {
  let self = description;
  const records = createRecords(store, kind);
  const [stopping, session] = [new AbortController(), randomUUID()];
  const list = createHostList(records, session, 3 * beatMs, clock);
  let id = findHostId(runFolder) ?? newHostId(runFolder);
  /** The id of this session's record. */
  let written: string | undefined;
  let beats = 0;
  let beating: PollLoop | undefined;

  async function beat(): Promise<void> {
    const record: HostRecord = { ...self, id, session, beat: (beats += 1) };
    const isTaken = (found?: HostRecord): boolean => written === id && found !== undefined && found.session !== session;
    const result = await records.change(prefix + id, (found) => (isTaken(found) ? found : record));
    written = id;
    if (result === record) return;
    id = newHostId(runFolder);
    logger.warn({ former: written, id }, 'another host uses the id of this one, took a new id');
    await beat();
  }

  /** Checks the versions of the others, as soon as it is known of those that matter whether they are alive. */
  async function checkOthers(): Promise<void> {
    while (!stopping.signal.aborted) {
      const others = (await list()).filter((host) => host.id !== id);
      try {
        return assertCompatible(self, others);
      } catch (error) {
        if (others.every(({ isAlive }) => isAlive !== undefined)) throw error;
      }
      await clock.pause(beatMs, stopping.signal);
    }
  }

  async function removeRecord(): Promise<void> {
    await beating?.stop();
    const found = written === undefined ? undefined : await records.getSound(prefix + written);
    if (found?.session === session) await records.remove(prefix + found.id);
  }

  async function stop(): Promise<void> {
    stopping.abort();
    // Without the store, the record stays as that of a killed host.
    await withTimeout(stopMs, removeRecord()).catch(() => undefined);
  }

  return {
    id: () => id,
    async start() {
      await beat();
      const run = async (): Promise<void> => {
        await beat();
        if (beats % beatsPerSearch === 0) await list();
      };
      beating = startPollLoop(run, { everyMs: beatMs, onError: createFailureLog(logger), pausesFirst: true });
      await checkOthers().catch(async (error: unknown) => {
        await stop();
        throw error;
      });
    },
    async useStream(stream) {
      self = { ...self, stream };
      await beat();
      await checkOthers();
    },
    list,
    stop,
  };
}
