import type { Clock } from '../../runtime/clock.ts';
import { type AppError, describeError, isDamage } from '../../runtime/errors.ts';
import { events, type Dataset } from '../../datasets/dataset.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { withMaintenanceLock, type TableDependencies } from './maintenance-task.ts';
import { createDueRows, type DueOptions, type YoungFileStats } from './seal-policy.ts';
import type { PartitionCosts } from './seal-outputs.ts';
import { sealDueFiles, type SealDependencies } from './seal.ts';

interface Failure {
  readonly error: AppError;
  readonly since: string;
  readonly tries: number;
  readonly retryAtMs: number;
}

export function describeTable(dataset: Dataset): string {
  return dataset === events ? 'the lake' : `the lake's table ${dataset.table}`;
}

export function sumBytes(files: readonly DataFile[]): number {
  return files.reduce((sum, file) => sum + file.sizeBytes, 0);
}

const firstWaitMs = 60_000;
const maxWaitMs = 3_600_000;
const namedFiles = 3;

/** Creates the record of young files that failed to seal; they are retried with backoff. A restart forgets it. */
function createSkippedFiles(clock: Clock, dataset: Dataset) {
  const of = describeTable(dataset);
  const prefix = dataset === events ? '' : `${dataset.table}/`;
  let failures = new Map<string, Failure>();

  function describe([path, { since, error }]: readonly [string, Failure]): Problem {
    return {
      code: 'seal_failed',
      subject: `${prefix}${path}`,
      message: `a young file of ${of} has not been sealed since ${since}: ${describeError(error)}`,
      action:
        "Run 'tributary lake check' if this lasts, and restore the files that it names from a backup. Exports and SQL over the snapshot have the rows; sealing retries automatically and seals all other files.",
      since,
    };
  }

  return {
    /** Returns the files to skip now, by path; the seal adds further ones. */
    begin(): Map<string, AppError> {
      const waiting = [...failures].filter(([, { retryAtMs }]) => performance.now() < retryAtMs);
      return new Map(waiting.map(([path, { error }]) => [path, error]));
    },
    /** Records the files that a seal has skipped; `young` are the paths of all young files after it. */
    end(skipped: ReadonlyMap<string, AppError>, young: ReadonlySet<string>): void {
      const nowMs = performance.now();
      const next = new Map<string, Failure>();
      for (const [path, error] of skipped) {
        if (!young.has(path)) continue;
        const known = failures.get(path);
        const tries = (known?.tries ?? 0) + 1;
        // Damage is checked each time: a restored file is sealed at once.
        const waitMs = isDamage(error) ? 0 : Math.min(maxWaitMs, firstWaitMs * 2 ** (tries - 1));
        const since = known?.since ?? new Date(clock.nowMs()).toISOString();
        next.set(path, known?.error === error ? known : { error, tries, since, retryAtMs: nowMs + waitMs });
      }
      failures = next;
    },
    problems(): Problem[] {
      const named = [...failures].slice(0, namedFiles).map(describe);
      const more = failures.size - named.length;
      if (more <= 0) return named;
      const others: Problem = {
        code: 'seal_failed',
        ...(dataset === events ? {} : { subject: dataset.table }),
        message: `${more} more young files of ${of} have not been sealed`,
        action: "Check the log for 'file skipped by sealing, will retry'; sealing retries automatically.",
      };
      return [...named, others];
    },
  };
}

function nameTable(dataset: Dataset): { readonly table?: string } {
  return dataset === events ? {} : { table: dataset.table };
}

/** Seals until nothing is due; adds failed files to `skipped`. False if another process holds the maintenance lock. */
async function sealAll(
  dependencies: TableDependencies,
  sealing: SealDependencies & { readonly signal: AbortSignal },
  options: DueOptions,
  skipped: Map<string, AppError>,
): Promise<boolean> {
  const { dataset, logger, counted } = dependencies;
  while (!sealing.signal.aborted) {
    const startedAt = performance.now();
    const look = await withMaintenanceLock(dependencies, async () => ({
      sealed: await sealDueFiles(sealing, options, skipped),
    }));
    if (look?.sealed === undefined) return look !== undefined;
    const durationMs = Math.round(performance.now() - startedAt);
    counted.sealed(look.sealed, durationMs);
    logger.info({ ...nameTable(dataset), ...look.sealed, durationMs }, 'sealed');
  }
  return true;
}

/** Creates the seals of a table; the first is due at once. */
export function createSealTask(dependencies: TableDependencies, { sealAgeMs, sealMaxBytes }: DueOptions) {
  const { dataset, table, clock, crashPoint, paths, logger } = dependencies;
  const everyMs = Math.max(50, Math.min(sealAgeMs / 10, 30_000));
  const skippedFiles = createSkippedFiles(clock, dataset);
  const known: YoungFileStats = new Map();
  const measured: PartitionCosts = new Map();
  const dueRows = createDueRows({ sealAgeMs, sealMaxBytes });
  let checkedAtMs = 0;
  let youngBytesSeen = 0;

  const listYoung = (): readonly DataFile[] => table.snapshot().young;
  const onRetry = (error: AppError): void =>
    logger.warn({ ...nameTable(dataset), error: describeError(error) }, 'seal failed, will retry with fewer files');

  function recordSkipped(files: ReadonlyMap<string, AppError>): void {
    const young = listYoung();
    skippedFiles.end(files, new Set(young.map((file) => file.path)));
    const kept = new Set(young.map((file) => file.absolutePath));
    for (const memory of [known, measured]) for (const file of memory.keys()) if (!kept.has(file)) memory.delete(file);
  }

  return {
    /** Reports whether to search for due rows, which reads three columns of each young file since the last check. */
    isDue(): boolean {
      const young = listYoung();
      // By the service's clock, as for the ages; one that was set back must not stop the sealing.
      const elapsedMs = Math.abs(clock.nowMs() - checkedAtMs);
      return young.length > 0 && (elapsedMs >= everyMs || sumBytes(young) - youngBytesSeen >= sealMaxBytes);
    },
    /** Seals until nothing is due, or the signal aborts. Errors: those of `sealDueFiles`. */
    async run(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
      // Taken first: the next search sees what falls due during a seal.
      const nowMs = clock.nowMs();
      youngBytesSeen = sumBytes(listYoung());
      const files = skippedFiles.begin();
      const noted = new Set(files.values());
      const stagingDir = paths.staging;
      const work = { dataset, table, duckdb, clock, crashPoint, stagingDir, dueRows, known, measured, onRetry, signal };
      try {
        if (await sealAll(dependencies, work, { sealAgeMs, sealMaxBytes }, files)) checkedAtMs = nowMs;
      } finally {
        for (const [file, error] of files)
          if (!noted.has(error))
            logger.warn(
              { ...nameTable(dataset), file, error: describeError(error) },
              'file skipped by sealing, will retry',
            );
        recordSkipped(files);
      }
    },
    forgetSealed(): void {
      if (listYoung().length === 0) recordSkipped(new Map());
    },
    problems: () => skippedFiles.problems(),
  };
}
