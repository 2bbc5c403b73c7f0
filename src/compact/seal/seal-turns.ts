import type { Clock } from '../../runtime/clock.ts';
import { type AppError, describeError, isDamage } from '../../runtime/errors.ts';
import { events, type Dataset } from '../../datasets/dataset.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { assertOwner } from '../lake-owner.ts';
import { underMaintenanceLock, type MaintenanceOptions, type TableDependencies } from './maintenance-task.ts';
import { createDueRows, type KnownParts } from './seal-policy.ts';
import type { MeasuredParts } from './seal-slices.ts';
import { sealDue, type SealDependencies } from './seal.ts';

/**
 * Remembers the young files that could not be sealed: all others are sealed, and these are tried again ever less often.
 */
export interface LeftOut {
  /** The files to leave out of a seal now, by path, each with what was wrong: the seal adds further ones. */
  begin(): Map<string, AppError>;
  /** Takes in what a seal has left out; `young` are the paths of all young files after it. */
  end(leftOut: ReadonlyMap<string, AppError>, young: ReadonlySet<string>): void;
  problems(): Problem[];
}

interface Failure {
  readonly error: AppError;
  readonly since: string;
  readonly tries: number;
  readonly retryAtMs: number;
}

/** What a problem calls a table. */
export function describeTable(dataset: Dataset): string {
  return dataset === events ? 'the lake' : `the lake's table ${dataset.table}`;
}

const longestWaitMs = 3_600_000;
/** So many files are named. */
const namedFiles = 3;

/**
 * Creates the memory; a restart forgets it. Damage is looked at again each time, as a restored file is sealed at once.
 */
export function createLeftOut(clock: Clock, dataset = events, firstWaitMs = 60_000): LeftOut {
  const of = describeTable(dataset);
  const prefix = dataset === events ? '' : `${dataset.table}/`;
  let failures = new Map<string, Failure>();
  return {
    begin() {
      const waiting = [...failures].filter(([, { retryAtMs }]) => performance.now() < retryAtMs);
      return new Map(waiting.map(([path, { error }]) => [path, error]));
    },
    end(leftOut, young) {
      const nowMs = performance.now();
      const next = new Map<string, Failure>();
      for (const [path, error] of leftOut) {
        if (!young.has(path)) continue;
        const known = failures.get(path);
        if (known?.error === error) next.set(path, known);
        else {
          const tries = (known?.tries ?? 0) + 1;
          const waitMs = isDamage(error) ? 0 : Math.min(longestWaitMs, firstWaitMs * 2 ** (tries - 1));
          next.set(path, {
            error,
            tries,
            since: known?.since ?? new Date(clock.nowMs()).toISOString(),
            retryAtMs: nowMs + waitMs,
          });
        }
      }
      failures = next;
    },
    problems() {
      const all = [...failures];
      const named = all.slice(0, namedFiles).map(([path, { since, error }]): Problem => ({
        code: 'file_unsealed',
        subject: `${prefix}${path}`,
        what: `a young file of ${of} has not been sealed since ${since}: ${describeError(error)}`,
        todo: "Exports and SQL over the snapshot have its rows, the sealed files have not. It is tried again by itself, and everything else is sealed; if it lasts, run 'tributary lake check', and restore what it names from a backup.",
        since,
      }));
      const more = all.length - named.length;
      return more <= 0
        ? named
        : [
            ...named,
            {
              code: 'files_unsealed',
              ...(dataset === events ? {} : { subject: dataset.table }),
              what: `${more} more young files of ${of} have not been sealed`,
              todo: "They are tried again by themselves; the log has a line 'left out of sealing' for each.",
            },
          ];
    },
  };
}

/** The seals of a compactor's life: when it is time to look for due rows, and what could not be sealed. */
export interface SealTurns {
  /**
   * Says whether it is time for a turn: now and then, and when much has come, since looking for due rows reads three
   * columns of every young file that has come since the last look.
   */
  isDue(): boolean;
  /** Seals what is due, seal after seal, until nothing is, or the signal aborts. Errors: those of `sealDue`. */
  turn(duckdb: Duckdb, signal: AbortSignal): Promise<void>;
  /** Forgets what could not be sealed when no young file is left. */
  forgetSealed(): void;
  /** The files that could not be sealed. */
  problems(): Problem[];
}

/** A table's name in a log line; that of the events goes without saying. */
function nameTable(dataset: Dataset): { readonly table?: string } {
  return dataset === events ? {} : { table: dataset.table };
}

function sumBytes(files: readonly DataFile[]): number {
  return files.reduce((sum, file) => sum + file.sizeBytes, 0);
}

/**
 * Seals again and again while something is due; what cannot be sealed is noted in `leftOut`. False when another holds the
 * maintenance lock: what is due was not looked for.
 */
async function sealAll(
  dependencies: TableDependencies,
  sealing: SealDependencies & { readonly signal: AbortSignal },
  options: MaintenanceOptions,
  leftOut: Map<string, AppError>,
): Promise<boolean> {
  const { dataset, leader, logger, counted, writer } = dependencies;
  while (!sealing.signal.aborted) {
    const startedAt = performance.now();
    const look = await underMaintenanceLock(dependencies, async () => {
      assertOwner(leader.lake(), writer);
      return { sealed: await sealDue(sealing, options, leftOut) };
    });
    if (look?.sealed === undefined) return look !== undefined;
    const durationMs = Math.round(performance.now() - startedAt);
    counted.sealed(look.sealed, durationMs);
    logger.info({ ...nameTable(dataset), ...look.sealed, durationMs }, 'sealed');
  }
  return true;
}

/** Creates the turns; the first is due at once. */
export function createSealTurns(dependencies: TableDependencies, options: MaintenanceOptions): SealTurns {
  const { dataset, table, clock, crashPoint, paths, logger } = dependencies;
  const everyMs = Math.max(50, Math.min(options.sealAgeMs / 10, 30_000));
  const leftOut = createLeftOut(clock, dataset);
  const known: KnownParts = new Map();
  const measured: MeasuredParts = new Map();
  const dueRows = createDueRows(options);
  let checkedAtMs = 0;
  let youngBytesSeen = 0;

  const listYoung = (): readonly DataFile[] => table.snapshot().young;
  const onRetry = (error: AppError): void =>
    logger.warn({ ...nameTable(dataset), error: describeError(error) }, 'a seal failed, will try fewer files');

  function noteLeftOut(files: ReadonlyMap<string, AppError>): void {
    const young = listYoung();
    leftOut.end(files, new Set(young.map((file) => file.path)));
    const kept = new Set(young.map((file) => file.absolutePath));
    for (const memory of [known, measured]) for (const file of memory.keys()) if (!kept.has(file)) memory.delete(file);
  }

  return {
    isDue() {
      const young = listYoung();
      // By the service's clock, as the ages are; a clock that was set back must not stop the sealing.
      const elapsedMs = Math.abs(clock.nowMs() - checkedAtMs);
      return young.length > 0 && (elapsedMs >= everyMs || sumBytes(young) - youngBytesSeen >= options.sealMaxBytes);
    },
    async turn(duckdb, signal) {
      // The time before the look: what falls due during a seal is seen by the next.
      const nowMs = clock.nowMs();
      youngBytesSeen = sumBytes(listYoung());
      const files = leftOut.begin();
      const noted = new Set(files.values());
      const sealing = {
        dataset,
        table,
        duckdb,
        clock,
        crashPoint,
        stagingDir: paths.staging,
        dueRows,
        known,
        measured,
        onRetry,
        signal,
      };
      try {
        if (await sealAll(dependencies, sealing, options, files)) checkedAtMs = nowMs;
      } finally {
        for (const [file, error] of files)
          if (!noted.has(error))
            logger.warn({ ...nameTable(dataset), file, error: describeError(error) }, 'left out of sealing');
        noteLeftOut(files);
      }
    },
    forgetSealed() {
      if (listYoung().length === 0) noteLeftOut(new Map());
    },
    problems: () => leftOut.problems(),
  };
}
