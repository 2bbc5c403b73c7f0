/**
 * Secondary tables: tables of other datasets, which store the lines of their kinds from the same stream.
 *
 * In: the classified batch of a flush. Out: a young file and a commit per table, before that of the events table, whose
 * position decides where the stream is read from.
 * Invariant: the log of a secondary table names the newest batch that it had lines of (epoch, last sequence, hash of
 * that message). It is ahead of the events table by at most one batch, and no batch crosses its position: each line is
 * stored once.
 * Crash: between the two commits it is ahead. The next batches end at its position and are not stored in it again. If
 * that message has changed, the stream has lost its tail: a new epoch begins, in which the table's rows are recognized
 * by their keys.
 */
import assert from 'node:assert/strict';
import { type Dataset, events, importDatasets } from '../../datasets/dataset.ts';
import { createNaturalKeyCache, type OnDamage } from '../../lake/batch/natural-key-cache.ts';
import type { BatchLookup, BatchTables, ClassifiedPart } from '../../lake/batch/batch-tables.ts';
import { type LakeOptions, hasTable, openDatasetTable } from '../../lake/lake.ts';
import { type Epoch, nextAvailableAtMs } from '../../lake/log/lake-state.ts';
import type { BuildChange, Table, TableOptions } from '../../lake/log/table.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { assertOwner } from '../lake-owner.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Clock } from '../../runtime/clock.ts';
import { toAdd } from '../../lake/files/data-file.ts';
import { type FlushCommitDependencies, commitOwned, createYoungFile, advanceEpoch } from './flush-commit.ts';
import type { Batch } from './pull-batch.ts';

interface SecondaryTableDependencies {
  readonly lakeDir: string;
  readonly primaryTable: Table;
  readonly writer: string;
  readonly tables: BatchTables;
  readonly onDamage: OnDamage;
  readonly options: LakeOptions & TableOptions;
}

/** Claims the table for this compactor: earlier owners can no longer commit to it. */
async function claim(table: Table, { primaryTable, writer }: SecondaryTableDependencies): Promise<void> {
  const before = table.lake().writer;
  await primaryTable.refresh();
  assertOwner(primaryTable.lake(), writer);
  await table.commit((_state, lake) => {
    if (lake.writer !== before)
      throw new AppError('fenced', `another compactor has taken over the table ${table.dir}`, {
        hint: 'Let only one compactor run on a data folder.',
      });
    return { cause: 'start', actions: [], writer };
  });
}

function createFollower(dataset: Dataset, dependencies: SecondaryTableDependencies) {
  const { lakeDir, tables, onDamage, options } = dependencies;
  const known = createNaturalKeyCache({ tables, dataset, onDamage });
  let table: Table | undefined;
  let lookedUpAtMs = 0;
  let isSought = false;

  async function open(): Promise<Table> {
    const opened = await openDatasetTable(lakeDir, dataset, options);
    await claim(opened, dependencies);
    table = opened;
    return opened;
  }

  return {
    dataset,
    find: () => table,
    /** Loads other processes' commits, or opens the table; ignores foreign commits. Errors: `fenced`, `Table`'s. */
    async refresh() {
      try {
        if (table !== undefined) await table.refresh();
        else if (!isSought && (await hasTable(lakeDir, dataset))) await open();
        // A table that another process creates later has nothing of the stream: its first row opens it.
        isSought = true;
        // The vacuum has its own table object (table-maintenance.ts): this list would only grow.
        table?.state().tombstones.clear();
      } catch (error) {
        // Batches without its lines continue; others fail when they are looked up or written.
        if (!isAppError(error, 'foreign_commit')) throw error;
      }
    },
    ensure: async () => table ?? open(),
    async lookUp(lookUp: BatchLookup) {
      lookedUpAtMs = table === undefined ? 0 : await known.lookUp(lookUp, table);
    },
    /** The newest `available_at` that the last lookup covered; 0 without a table. */
    lookedUpAtMs: () => lookedUpAtMs,
  };
}

export type SecondaryTable = ReturnType<typeof createFollower>;

export function createSecondaryTables(dependencies: SecondaryTableDependencies): SecondaryTable[] {
  return importDatasets.filter((dataset) => dataset !== events).map((dataset) => createFollower(dataset, dependencies));
}

export function findLeastAhead<T extends Pick<Epoch, 'appId' | 'position'>>(
  states: readonly T[],
  { appId, position }: Pick<Epoch, 'appId' | 'position'>,
): T | undefined {
  return states
    .filter((own) => own.appId === appId && own.position > position)
    .toSorted((a, b) => a.position - b.position)[0];
}

/** Returns the table state that is least ahead of the events table, after a crash or a restore. Batches end there. */
export function findAhead(secondaryTables: readonly SecondaryTable[], epoch: Epoch): Epoch | undefined {
  return findLeastAhead(
    secondaryTables.flatMap((secondaryTable) => secondaryTable.find()?.lake().epoch ?? []),
    epoch,
  );
}

export interface SecondaryFlushDependencies extends FlushCommitDependencies {
  readonly secondaryTables: readonly SecondaryTable[];
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

interface SecondaryPosition {
  readonly position: number | undefined;
  readonly availableAtMs: number;
}

function createBuild(
  { writer }: SecondaryFlushDependencies,
  { rows, repeats }: ClassifiedPart,
  flushed: { readonly epoch: Epoch; readonly secondaryPosition: SecondaryPosition; readonly availableAtMs: number },
  add: ReturnType<typeof toAdd> | undefined,
): BuildChange {
  const { epoch, secondaryPosition, availableAtMs } = flushed;
  const { appId, position } = epoch;
  return (state, lake) => {
    assertOwner(lake, writer);
    if (state.txns.get(appId) !== secondaryPosition.position)
      throw new AppError('commit_conflict', 'another compactor has committed a batch to the table before its takeover');
    // Every commit of rows has a later one: they may be the rows of the batch.
    if (lake.availableAtMs !== secondaryPosition.availableAtMs)
      throw new AppError('commit_conflict', 'another process has added rows to the table');
    return {
      cause: 'flush',
      actions: [
        { txn: { appId, version: position, lastUpdated: availableAtMs } },
        ...(add === undefined ? [] : [{ add }]),
      ],
      epoch,
      availableAtMs,
      totals: { streamed: rows + repeats, stored: rows, repeats },
      metrics: { rows, bytes: add?.size ?? 0, events: rows + repeats, lastSequence: position },
    };
  };
}

function createFollowerFlush(
  dependencies: SecondaryFlushDependencies,
  { part, secondaryTable }: { readonly part: ClassifiedPart; readonly secondaryTable: SecondaryTable },
  { batch, epoch, commitId }: { readonly batch: Batch; readonly epoch: Epoch; readonly commitId: string },
) {
  const { table: eventsTable, writer, clock } = dependencies;
  const secondaryPosition: SecondaryPosition = {
    position: secondaryTable.find()?.state().txns.get(epoch.appId),
    availableAtMs: secondaryTable.lookedUpAtMs(),
  };
  let young: ReturnType<typeof createYoungFile> | undefined;
  let prepared: { readonly build: BuildChange; readonly sizeBytes: number } | undefined;
  return {
    part,
    sizeBytes: () => prepared?.sizeBytes ?? 0,
    /** Writes the rows durably; creates the table for its first row. */
    async write() {
      const table = await secondaryTable.ensure();
      young = createYoungFile(table, commitId);
      const availableAtMs = nextAvailableAtMs(clock, table.lake());
      const written = await young.write((file) => part.writeYoung(file, availableAtMs, batch.bytes));
      const add = written === undefined ? undefined : toAdd(young.path, written, availableAtMs, true);
      const flushed = { epoch: advanceEpoch(epoch, batch), secondaryPosition, availableAtMs };
      prepared = { build: createBuild(dependencies, part, flushed, add), sizeBytes: written?.sizeBytes ?? 0 };
    },
    /** Errors: `fenced`; `commit_conflict` if another process has added rows since the classification. */
    async commit() {
      assert(prepared !== undefined, 'the rows are written before they are committed');
      // The claim on the events table decides, and may have been lost since the pull.
      await eventsTable.refresh();
      assertOwner(eventsTable.lake(), writer);
      await commitOwned(dependencies, await secondaryTable.ensure(), prepared.build, commitId);
    },
    async removeUnnamed() {
      await young?.removeUnnamed();
    },
  };
}

export type SecondaryFlush = ReturnType<typeof createFollowerFlush>;

/** Plans each table's part of a batch; skips tables that have the batch already. */
export function planSecondaryFlushes(
  dependencies: SecondaryFlushDependencies,
  others: readonly ClassifiedPart[],
  flushing: { readonly batch: Batch; readonly epoch: Epoch; readonly commitId: string },
): SecondaryFlush[] {
  const { batch, epoch } = flushing;
  return others.flatMap((part) => {
    const secondaryTable = dependencies.secondaryTables.find(({ dataset }) => dataset === part.dataset);
    assert(secondaryTable !== undefined, `the table ${part.dataset.table} follows the events`);
    const position = secondaryTable.find()?.state().txns.get(epoch.appId) ?? epoch.position;
    if (position <= epoch.position) return [createFollowerFlush(dependencies, { part, secondaryTable }, flushing)];
    assert(batch.lastSequence <= position, `the batch reaches across the position of ${part.dataset.table}`);
    return [];
  });
}
