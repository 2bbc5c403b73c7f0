/**
 * Event lines become rows of the lake: converted, judged by what the lake has already, written. One object owns the
 * engine's temporary tables for it.
 *
 * In: a spool of NDJSON lines, from the stream or from failed events. Out: a Parquet file for each dataset of the rows
 * that are to be written, and the lines that cannot be rows, each with its reason.
 * Order: load, judge, write, keep the keys. Of a batch of plain lines (plain-batch.ts) only those under keys are loaded
 * and judged, and all are written straight from the spool; where none is under a key, that is all there is to do. Each
 * step is a method of what the step before has returned. The tables have room for one batch and one verdict: a step of
 * one that another has taken the place of fails an assertion.
 * Invariant: every line of the spool is a row, a repeat or a failed event; one bad line does not keep the others out.
 * Crash: nothing rests here; the tables and the cleaned spool go with the process, and the caller's folder is emptied
 * at start.
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

/** The temporary tables of one engine, in which batches are taken in one after the other. */
export interface BatchTables {
  /** The known keys, which stay from one batch to the next. */
  readonly keys: KeyTable;
  /** Reads the hashes of the event ids of a file's rows. The caller has seen that it is whole. */
  readKeys(file: DataFile, take: (hashes: KeyHashes) => void): Promise<void>;
  /**
   * Writes a spool straight to a file, beside the tables, where every line is plain and none under a key: see
   * plain-batch.ts. Undefined, and there is no file, where any is not, or may well not be, since the batch before had
   * keys: then `loadKeyed` is asked.
   */
  readonly writePlain: PlainWriter['write'];
  /**
   * Reads the lines under keys of a spool that may be plain, which takes the place of the batch before. Once judged, all
   * lines are written straight from the spool: `writeYoung` returns undefined, and there is no file, where a line is not
   * plain, a key stands for another request, or all are repeats. Undefined where there is no use in it: lines are not
   * plain for another reason, and the batch is to be loaded as a whole.
   */
  loadKeyed(lines: PlainLines): Promise<LoadedBatch | undefined>;
  /**
   * Reads a spool of `events` lines, which takes the place of the batch before. One bad line would make DuckDB refuse
   * the whole file: only then, or when `eachLine` asks for it, each line is checked by itself. A bad event is a value
   * with a reason, never an error; the spool stays as it is. Errors: `sql`, `memory`, `disk`.
   */
  load(spool: string, events: number, eachLine?: boolean): Promise<LoadedBatch>;
}

/** A batch whose lines are in the tables, good and bad ones. */
export interface LoadedBatch {
  /** Why the engine would not read the spool as it is: a bad line, or a read that failed. */
  readonly refused: AppError | undefined;
  /**
   * Judges the batch by what is known of it. Can be repeated, when more may be known: the verdict before is void then.
   */
  judge(known: KnownEvents): Promise<JudgedBatch>;
  /** Writes all rows as they are, to see whether the engine can. Errors: those of `writeDataFile`. */
  writeUnjudged(file: string): Promise<void>;
}

/** Knows what the lake has of a batch: its events, and the requests that its Idempotency-Keys stand for. */
export interface KnownEvents {
  readonly rule: DedupeRule;
  /** Loads that into the tables, beside what was loaded before; a part of each `judge`. */
  load(batch: BatchLookUp): Promise<void>;
}

/** What can be loaded for a batch that is being judged. */
export interface BatchLookUp {
  /** Whole hours in which keyed events of the batch were received, Unix milliseconds of their beginnings, in order. */
  keyedHours(hourMs: number): Promise<number[]>;
  /**
   * Looks every event of the batch up in files of the lake, whatever its kind: one that is there is a repeat. From then
   * on one that is in the batch twice is a repeat, too. Errors: `file_damaged`.
   */
  lookUpEvents(files: readonly DataFile[]): Promise<void>;
  /** Adds to the known keys what some files have under those of the batch. The caller has seen that they are whole. */
  addOwnKeys(files: readonly DataFile[]): Promise<void>;
  /**
   * Returns when the requests were received that version 0.2 may have taken in first, of those whose keys were reused by
   * the verdict before, Unix milliseconds.
   */
  formerTimes(): Promise<readonly number[]>;
  /** Looks those up in files by their values: what is there is a repeat. The caller has seen that they are whole. */
  lookUpFormer(files: readonly DataFile[], emptyFile: string): Promise<void>;
  /** The rows of a dataset's kinds that have a key of their own. */
  readOwnKeys(dataset: Dataset): Promise<OwnKeys>;
  /** Looks such rows up in files: one that is there is a repeat. The caller has seen that they are whole. */
  lookUpOwnKeys(files: readonly DataFile[], rowids: readonly number[]): Promise<void>;
}

/** What of a judged batch belongs to the table of one dataset. */
export interface JudgedPart {
  readonly dataset: Dataset;
  /** Rows to write. */
  readonly rows: number;
  /** Events that the table has already. */
  readonly repeats: number;
  /**
   * Writes the rows to a file that is soon sealed, in row groups that the engine has memory for; `lineBytes`: those of
   * the event lines. Undefined: there are none. Durability and errors: those of `writeDataFile`.
   */
  writeYoung(file: string, availableAtMs: number, lineBytes: number): Promise<WrittenFile | undefined>;
  /** Writes the rows to a file, which may have none. Durability and errors: those of `writeDataFile`. */
  writeRows(file: string, availableAtMs: number): Promise<WrittenFile>;
}

/** What a verdict says of the keys of a batch. */
export interface KeyVerdict {
  /** Among the rows to write are some under an Idempotency-Key. */
  readonly addsKeys: boolean;
  /** Keys of some lines stand for other requests. */
  readonly reusesKeys: boolean;
  /** Adds the keys of the batch to the known ones, once it is committed. */
  keepKeys(): Promise<void>;
  /** As in `BatchLookUp`. */
  keyedHours(hourMs: number): Promise<number[]>;
}

/**
 * A batch with a verdict: each of its lines is a row to write, a repeat, or fails. Beside its part of the table of
 * events it has those of other datasets that there are lines of; all that fail are the events' own.
 */
export interface JudgedBatch extends JudgedPart, KeyVerdict {
  readonly others: readonly JudgedPart[];
  /** The lines that fail, by their place in the spool: bad ones, and those whose key stands for another request. */
  readonly failedLines: readonly BadLine[];
}

/** Asserts that no later batch, or verdict, has taken the tables over. */
type AssertCurrent = () => void;

/** Hands out generations, of which only the newest holds. */
function createGenerations(outOfOrder: string): () => AssertCurrent {
  let newest = 0;
  return () => {
    newest += 1;
    const own = newest;
    return () => assert(own === newest, outOfOrder);
  };
}

/** What all batches of an engine are taken in with. */
interface Intake {
  readonly duckdb: Duckdb;
  readonly keys: KeyTable;
  readonly enrichment: BatchEnrichment | undefined;
  readonly plain: PlainWriter;
}

/** Lines that belong to a dataset, and how many of them are repeats. */
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
  /** What is there is of the batch before. */
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

/** A spool whose lines under keys, so many, are the loaded batch; the others may be plain. */
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
 * Opens the tables, empty, in place of those that the engine had. With an enricher, rows are written with what it tells
 * of their addresses and User-Agents. With `slices` not all of the known keys stay in the engine's memory. `mask`: the lake's. Errors:
 * `sql`, `memory`.
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
  /** The batch before had lines under keys: then this one is likely to have some. */
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
