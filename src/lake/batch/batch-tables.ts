/**
 * Converts event lines to rows of the lake by the engine's temporary tables, which one object owns.
 *
 * In: a spool of NDJSON lines, from the stream or from failed events. Out: a Parquet file per dataset, and the lines
 * that cannot be rows, each with its reason.
 * Order: load, classify, write, keep the keys; each step is a method of the result of the previous step. The tables
 * hold one batch and one classification: a step of an earlier one fails an assertion.
 * Invariant: every line of the spool is a row, a duplicate or a failed event; a bad line does not affect the others.
 * Crash: nothing is durable here; the caller's folder is emptied at start.
 */
import assert from 'node:assert/strict';
import { type Dataset, events as leader, importDatasets } from '../../datasets/dataset.ts';
import type { KeyMask } from '../../datasets/event-id.ts';
import type { AppError } from '../../runtime/errors.ts';
import { type WrittenFile, writeDataFile } from '../files/data-file.ts';
import type { EnrichedSelect, Enricher } from '../files/enriched-rows.ts';
import { rowGroupRows } from '../files/row-memory.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import type { BadLine } from './spool-lines.ts';
import { type Converted, convertSpool, unjudgedRowsSql } from './convert.ts';
import {
  type DedupeRule,
  type OwnKeys,
  type Verdict,
  createDedupeTables,
  findFormerTimes,
  forgetLookUps,
  judgeBatch,
  lookUpEvents,
  lookUpFormer,
  lookUpOwnKeys,
  readFileKeys,
  readKeyedHours,
  readOwnKeys,
} from './deduplicate.ts';
import type { KeyHashes } from './key-set.ts';
import { type BatchEnrichment, createBatchEnrichment } from './enrich-batch.ts';
import {
  type PlainLines,
  type PlainWriter,
  createPlainWriter,
  loadKeyedLines,
  nameLeftOut,
  unlessRefused,
} from './plain-batch.ts';
import { type KeySliceOptions, type KeyTable, createKeyTable } from './key-table.ts';
import { measureRows, rowsSql } from './line-sql.ts';

/** The temporary tables of one engine, which hold one batch at a time. */
export interface BatchTables {
  /** The known keys, kept from batch to batch. */
  readonly keys: KeyTable;
  /** Reads the hashes of the event ids of an intact file. */
  readKeys(file: DataFile, take: (hashes: KeyHashes) => void): Promise<void>;
  /**
   * Writes a spool by the direct path (plain-batch.ts). Undefined without a file if a line is not plain or has an
   * Idempotency-Key, or if the previous batch had keys: then `loadKeyed` is due.
   */
  readonly writePlain: PlainWriter['write'];
  /**
   * Loads the keyed lines of a spool that may be plain. After classification `writeYoung` writes all its lines
   * directly; it returns undefined, without a file, if a line is not plain, a key was reused, or all are duplicates.
   * Undefined if the batch must be loaded with `load`.
   */
  loadKeyed(lines: PlainLines): Promise<LoadedBatch | undefined>;
  /**
   * Loads a spool of `events` lines. The engine refuses a file with one bad line: only then, or with `eachLine`, each
   * line is checked individually. The spool stays unchanged. Errors: `sql`, `memory`, `disk`.
   */
  load(spool: string, events: number, eachLine?: boolean): Promise<LoadedBatch>;
}

/** A batch whose lines are in the tables, good and bad ones. */
export interface LoadedBatch {
  /** Why the engine refused the spool: a bad line, or a failed read. */
  readonly refused: AppError | undefined;
  /** Classifies the batch by the events that are known. Repeatable; voids the previous classification. */
  judge(known: KnownEvents): Promise<JudgedBatch>;
  /** Writes all rows, to find out whether the engine has the memory for them. Errors: those of `writeDataFile`. */
  writeUnjudged(file: string): Promise<void>;
}

/** The source of what the lake has of a batch: its events, and the requests of its Idempotency-Keys. */
export interface KnownEvents {
  readonly rule: DedupeRule;
  /** Loads it into the tables, as a part of each `judge`. */
  load(batch: BatchLookUp): Promise<void>;
}

/** Loads for a batch that is being classified. Files must be intact. */
export interface BatchLookUp {
  /** Start of each hour in which keyed events of the batch were received, Unix ms, ascending. */
  keyedHours(hourMs: number): Promise<number[]>;
  /**
   * Finds events of the batch in files of the lake, regardless of kind. From then on, events that are in the batch
   * twice are duplicates too. Errors: `file_damaged`.
   */
  lookUpEvents(files: readonly DataFile[]): Promise<void>;
  /** Adds to the known keys what the files have under those of the batch. */
  addOwnKeys(files: readonly DataFile[]): Promise<void>;
  /**
   * Receipt times of the requests that version 0.2 may have stored first, of the keys that the previous classification
   * found reused, Unix ms.
   */
  formerTimes(): Promise<readonly number[]>;
  /** Finds the events of those requests in files by their values: they are duplicates. */
  lookUpFormer(files: readonly DataFile[], emptyFile: string): Promise<void>;
  /** The rows of a dataset's kinds that have a natural key. */
  readOwnKeys(dataset: Dataset): Promise<OwnKeys>;
  /** Finds such rows in files: they are duplicates. */
  lookUpOwnKeys(files: readonly DataFile[], rowids: readonly number[]): Promise<void>;
}

/** The part of a classified batch that belongs to one table. */
export interface JudgedPart {
  readonly dataset: Dataset;
  readonly rows: number;
  /** Duplicates. */
  readonly repeats: number;
  /**
   * Writes the rows to a young file, in row groups that fit the engine's memory; `lineBytes`: size of the event lines.
   * Undefined: no rows. Durability and errors: those of `writeDataFile`.
   */
  writeYoung(file: string, availableAtMs: number, lineBytes: number): Promise<WrittenFile | undefined>;
  /** Writes the rows to a file, which may be empty. Durability and errors: those of `writeDataFile`. */
  writeRows(file: string, availableAtMs: number): Promise<WrittenFile>;
}

/** The keys of a classified batch. */
export interface KeyVerdict {
  /** Some new rows have an Idempotency-Key. */
  readonly addsKeys: boolean;
  /** Some lines have the key of another request. */
  readonly reusesKeys: boolean;
  /** Adds the keys of the batch to the known ones, after its commit. */
  keepKeys(): Promise<void>;
  /** As in `BatchLookUp`. */
  keyedHours(hourMs: number): Promise<number[]>;
}

/**
 * A classified batch: the part of the events table, and those of the other tables that it has lines of. All failed
 * lines belong to the events.
 */
export interface JudgedBatch extends JudgedPart, KeyVerdict {
  readonly others: readonly JudgedPart[];
  /** The lines that fail, by their index in the spool. */
  readonly failedLines: readonly BadLine[];
}

type AssertCurrent = () => void;

/** Returns generations; the assertion of all but the newest fails. */
function createGenerations(outOfOrder: string): () => AssertCurrent {
  let newest = 0;
  return () => {
    newest += 1;
    const own = newest;
    return () => assert(own === newest, outOfOrder);
  };
}

interface Intake {
  readonly duckdb: Duckdb;
  readonly keys: KeyTable;
  readonly enrichment: BatchEnrichment | undefined;
  readonly plain: PlainWriter;
}

function countLines({ kinds }: Verdict, dataset: Dataset): { readonly lines: number; readonly repeats: number } {
  const found = dataset.kinds.map((kind) => kinds.get(kind) ?? { lines: 0, repeats: 0 });
  return {
    lines: found.reduce((sum, { lines }) => sum + lines, 0),
    repeats: found.reduce((sum, { repeats }) => sum + repeats, 0),
  };
}

function toJudgedPart(
  { duckdb, enrichment, plain }: Intake,
  { dataset, rows, repeats }: Pick<JudgedPart, 'dataset' | 'rows' | 'repeats'>,
  events: number,
  assertCurrent: AssertCurrent,
): JudgedPart {
  const assertRows = (counted: number): void =>
    assert.equal(counted, rows, `of ${events} events ${rows} are rows of ${dataset.table}, and ${repeats} are repeats`);
  const write = (toFile: (enriched?: EnrichedSelect) => Promise<WrittenFile>): Promise<WrittenFile> =>
    enrichment === undefined ? toFile() : enrichment.write(dataset, toFile);
  return {
    dataset,
    rows,
    repeats,
    async writeYoung(file, availableAtMs, lineBytes) {
      assertCurrent();
      const measured = await measureRows(duckdb, dataset);
      assertRows(measured.rows);
      if (dataset === leader) plain.learn(measured.filled);
      if (rows === 0) return undefined;
      const columns = dataset.columns.length;
      const rowGroup = {
        rows: rowGroupRows(duckdb.memoryMb, { rows: events, lineBytes, entries: measured.entries, columns }),
      };
      const written = await write((enriched) =>
        writeDataFile(
          duckdb,
          rowsSql(dataset, availableAtMs, { enriched, filled: measured.filled }),
          file,
          'young',
          rowGroup,
        ),
      );
      assertRows(written.numRecords);
      return written;
    },
    async writeRows(file, availableAtMs) {
      assertCurrent();
      const written = await write((enriched) =>
        writeDataFile(duckdb, rowsSql(dataset, availableAtMs, { enriched }), file),
      );
      assertRows(written.numRecords);
      return written;
    },
  };
}

function toJudgedBatch(
  intake: Intake,
  { events: all, badLines, ...converted }: Converted,
  verdict: Verdict,
  assertCurrent: AssertCurrent,
): JudgedBatch {
  const { duckdb, keys } = intake;
  const { reused, addsKeys } = verdict;
  const failedLines = [
    ...badLines,
    ...reused.map((rowid): BadLine => ({ line: converted.lineOf(rowid), reason: 'key_reused' })),
  ];
  const others = importDatasets.flatMap((dataset) => {
    const { lines, repeats } = countLines(verdict, dataset);
    if (dataset === leader || lines === 0) return [];
    return [toJudgedPart(intake, { dataset, rows: lines - repeats, repeats }, all, assertCurrent)];
  });
  const { repeats } = countLines(verdict, leader);
  const ofOthers = others.reduce((sum, part) => sum + part.rows + part.repeats, 0);
  const rows = all - ofOthers - failedLines.length - repeats;
  let keysKept = false;
  return {
    ...toJudgedPart(intake, { dataset: leader, rows, repeats }, all, assertCurrent),
    others,
    failedLines,
    addsKeys,
    reusesKeys: reused.length > 0,
    async keepKeys() {
      assertCurrent();
      assert(!keysKept, 'the keys of the batch are known already');
      keysKept = true;
      await keys.addJudged();
    },
    async keyedHours(hourMs) {
      assertCurrent();
      return readKeyedHours(duckdb, hourMs);
    },
  };
}

function toLoadedBatch(intake: Intake, converted: Converted, assertLoaded: AssertCurrent): LoadedBatch {
  const { duckdb, keys } = intake;
  const nextVerdict = createGenerations('the batch has been judged anew: this verdict is void');
  let isLookedUp = false;
  let isForgotten = false;
  const forgetOnce = async (): Promise<void> => {
    if (!isForgotten) await forgetLookUps(duckdb);
    isForgotten = true;
  };
  const lookUp: BatchLookUp = {
    keyedHours: (hourMs) => readKeyedHours(duckdb, hourMs),
    async lookUpEvents(files) {
      isLookedUp = true;
      await lookUpEvents(duckdb, files);
    },
    addOwnKeys: (files) => keys.addOfBatch(files),
    formerTimes: () => findFormerTimes(duckdb, keys),
    async lookUpFormer(files, emptyFile) {
      isLookedUp = true;
      await lookUpFormer(duckdb, keys, files, emptyFile);
    },
    readOwnKeys: (dataset) => readOwnKeys(duckdb, dataset),
    lookUpOwnKeys: (files, rowids) => lookUpOwnKeys(duckdb, files, rowids),
  };
  return {
    refused: converted.refused,
    async judge(known) {
      assertLoaded();
      const assertVerdict = nextVerdict();
      await forgetOnce();
      await known.load(lookUp);
      const verdict = await judgeBatch(duckdb, keys, known.rule, isLookedUp);
      return toJudgedBatch(intake, converted, verdict, () => {
        assertLoaded();
        assertVerdict();
      });
    },
    async writeUnjudged(file) {
      assertLoaded();
      await writeDataFile(duckdb, unjudgedRowsSql, file, 'young');
    },
  };
}

/** Wraps a spool whose keyed lines are the loaded batch. */
function toLoadedKeys(intake: Intake, lines: PlainLines, keyed: number, assertLoaded: AssertCurrent): LoadedBatch {
  const { duckdb, plain } = intake;
  const converted: Converted = { events: keyed, badLines: [], lineOf: (rowid) => rowid, refused: undefined };
  const loaded = toLoadedBatch(intake, converted, assertLoaded);
  return {
    ...loaded,
    async judge(known) {
      const judged = await loaded.judge(known);
      const { repeats, failedLines } = judged;
      const rows = lines.events - repeats;
      return {
        ...judged,
        rows,
        async writeYoung(file, availableAtMs) {
          assertLoaded();
          if (failedLines.length > 0 || rows === 0) return undefined;
          if (repeats > 0) await nameLeftOut(duckdb);
          return plain.write({ ...lines, repeats }, file, availableAtMs);
        },
      };
    },
  };
}

/**
 * Creates the tables, empty, in place of earlier ones of the engine. An enricher fills columns from addresses and
 * User-Agents. `slices` keeps most known keys outside of the engine's memory. Errors: `sql`, `memory`.
 */
export async function openBatchTables(
  duckdb: Duckdb,
  enricher?: Enricher,
  slices?: KeySliceOptions,
  mask: KeyMask = 0,
): Promise<BatchTables> {
  await createDedupeTables(duckdb);
  const keys = createKeyTable(duckdb, mask, slices);
  const nextBatch = createGenerations('the tables have another batch by now');
  const enrichment = enricher === undefined ? undefined : createBatchEnrichment(duckdb, enricher);
  const plain = createPlainWriter(duckdb, enrichment);
  const intake: Intake = { duckdb, keys, enrichment, plain };
  /** The previous batch had keys: this one probably has some. */
  let expectsKeys = false;
  return {
    writePlain: async (lines, file, availableAtMs) =>
      expectsKeys ? undefined : plain.write(lines, file, availableAtMs),
    async loadKeyed(lines) {
      const assertLoaded = nextBatch();
      const keyed = await unlessRefused(() => loadKeyedLines(duckdb, lines.file));
      assertLoaded();
      const wasExpected = expectsKeys;
      expectsKeys = keyed !== undefined && keyed > 0;
      return expectsKeys || (keyed === 0 && wasExpected)
        ? toLoadedKeys(intake, lines, keyed ?? 0, assertLoaded)
        : undefined;
    },
    keys,
    readKeys: (file, take) => readFileKeys(duckdb, file, take),
    async load(spool, events, eachLine = false) {
      const assertLoaded = nextBatch();
      const converted = await convertSpool(duckdb, spool, events, eachLine);
      assertLoaded();
      return toLoadedBatch(intake, converted, assertLoaded);
    },
  };
}
