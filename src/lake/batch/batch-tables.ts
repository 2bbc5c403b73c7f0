/**
 * Converts event lines to rows by the engine's temporary tables.
 *
 * In: a spool of NDJSON lines, from the stream or from failed events. Out: a Parquet file per dataset, and lines that
 * cannot be rows, each with a reason.
 * Order: load, classify, write, keep the keys. Each step is a method of the previous result. Assertions refuse a result
 * of an earlier batch or classification.
 * Invariant: every line is a row, a duplicate or a failed event. A bad line does not affect the others.
 * Crash: nothing is durable here. The caller's folder is emptied at start.
 */
import assert from 'node:assert/strict';
import { type Dataset, events as leader, importDatasets } from '../../datasets/dataset.ts';
import type { KeyMask } from '../../datasets/event-id.ts';
import { type WrittenFile, writeDataFile } from '../files/data-file.ts';
import type { EnrichedSelect, Enricher } from '../files/enriched-rows.ts';
import { rowGroupRows } from '../files/row-memory.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { type BadLine, type Converted, convertSpool } from './spool-lines.ts';
import {
  type KnownEvents,
  type Classification,
  createClassifier,
  createDedupeTables,
  readFileKeys,
  readKeyedHours,
} from './deduplicate.ts';
import type { KeyHashes } from './key-set.ts';
import { type BatchEnrichment, createBatchEnrichment } from './enrich-batch.ts';
import {
  type DirectLines,
  type DirectWriter,
  createDirectWriter,
  loadKeyedLines,
  markSkippedLines,
  undefinedIfRejected,
} from './direct-writer.ts';
import { type SpilledKeysOptions, type IdempotencyKeyTable, createKeyTable } from './key-table.ts';
import { measureRows, rowsSql } from './line-sql.ts';

type AssertCurrent = () => void;

export type { BatchLookup, KnownEvents } from './deduplicate.ts';

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
  readonly keys: IdempotencyKeyTable;
  readonly enrichment: BatchEnrichment | undefined;
  readonly plain: DirectWriter;
}

function countLines({ kinds }: Classification, dataset: Dataset): { readonly lines: number; readonly repeats: number } {
  const found = dataset.kinds.map((kind) => kinds.get(kind) ?? { lines: 0, repeats: 0 });
  return {
    lines: found.reduce((sum, { lines }) => sum + lines, 0),
    repeats: found.reduce((sum, { repeats }) => sum + repeats, 0),
  };
}

/** Returns the rows and duplicates of a classified batch that belong to a table. */
function toJudgedPart(
  { duckdb, enrichment, plain }: Intake,
  { dataset, rows, repeats }: { readonly dataset: Dataset; readonly rows: number; readonly repeats: number },
  events: number,
  assertCurrent: AssertCurrent,
) {
  const assertRows = (counted: number): void =>
    assert.equal(counted, rows, `of ${events} events ${rows} are rows of ${dataset.table}, and ${repeats} are repeats`);
  const write = (toFile: (enriched?: EnrichedSelect) => Promise<WrittenFile>): Promise<WrittenFile> =>
    enrichment === undefined ? toFile() : enrichment.write(dataset, toFile);
  return {
    dataset,
    rows,
    repeats,
    /** Writes rows, in row groups that fit in memory; undefined without rows. `lineBytes`: size of their lines. */
    async writeYoung(file: string, availableAtMs: number, lineBytes: number): Promise<WrittenFile | undefined> {
      assertCurrent();
      const { filled, entries, rows: counted } = await measureRows(duckdb, dataset);
      assertRows(counted);
      if (dataset === leader) plain.learn(filled);
      if (rows === 0) return undefined;
      const measured = { rows: events, lineBytes, entries, columns: dataset.columns.length };
      const rowGroup = { rows: rowGroupRows(duckdb.memoryMb, measured) };
      const written = await write((enriched) =>
        writeDataFile(duckdb, rowsSql(dataset, availableAtMs, { enriched, filled }), file, 'young', rowGroup),
      );
      assertRows(written.numRecords);
      return written;
    },
    /** Writes rows to a file, which may be empty. Durability and errors: those of `writeDataFile`. */
    async writeRows(file: string, availableAtMs: number): Promise<WrittenFile> {
      assertCurrent();
      const written = await write((enriched) =>
        writeDataFile(duckdb, rowsSql(dataset, availableAtMs, { enriched }), file),
      );
      assertRows(written.numRecords);
      return written;
    },
  };
}

export type ClassifiedPart = ReturnType<typeof toJudgedPart>;

/** Returns the parts of a classified batch: that of the events table and those of secondary tables. */
function toJudgedBatch(
  intake: Intake,
  { events: all, badLines, ...converted }: Converted,
  classification: Classification,
  assertCurrent: AssertCurrent,
) {
  const { duckdb, keys } = intake;
  const { reused, addsKeys } = classification;
  const failedLines = [
    ...badLines,
    ...reused.map((rowid): BadLine => ({ line: converted.lineOf(rowid), reason: 'key_reused' })),
  ];
  const others = importDatasets.flatMap((dataset) => {
    const { lines, repeats } = countLines(classification, dataset);
    if (dataset === leader || lines === 0) return [];
    return [toJudgedPart(intake, { dataset, rows: lines - repeats, repeats }, all, assertCurrent)];
  });
  const { repeats } = countLines(classification, leader);
  const ofOthers = others.reduce((sum, part) => sum + part.rows + part.repeats, 0);
  const rows = all - ofOthers - failedLines.length - repeats;
  let keysKept = false;
  return {
    ...toJudgedPart(intake, { dataset: leader, rows, repeats }, all, assertCurrent),
    others,
    /** Indexes in the spool of failed lines, which all belong to the events table. */
    failedLines,
    addsKeys,
    /** Whether lines have the key of another request. */
    reusesKeys: reused.length > 0,
    async keepKeys() {
      assertCurrent();
      assert(!keysKept, 'the keys of the batch are known already');
      keysKept = true;
      await keys.addJudged();
    },
    async keyedHours() {
      assertCurrent();
      return readKeyedHours(duckdb);
    },
  };
}

export type ClassifiedBatch = ReturnType<typeof toJudgedBatch>;

function toLoadedBatch(intake: Intake, converted: Converted, assertLoaded: AssertCurrent) {
  const { duckdb, keys } = intake;
  const nextClassification = createGenerations('the batch was classified again: this result is outdated');
  const classify = createClassifier(duckdb, keys);
  return {
    /** Why the engine refused the spool: a bad line, or a failed read. */
    refused: converted.refused,
    /** Classifies the batch by known events. Repeatable; invalidates the previous classification. */
    async classify(known: KnownEvents): Promise<ClassifiedBatch> {
      assertLoaded();
      const assertClassification = nextClassification();
      return toJudgedBatch(intake, converted, await classify(known), () => {
        assertLoaded();
        assertClassification();
      });
    },
    /** Writes all rows, to test whether the engine has the memory. Errors: those of `writeDataFile`. */
    async writeUnclassified(file: string) {
      assertLoaded();
      await writeDataFile(duckdb, 'SELECT * EXCLUDE (bad) FROM batch', file, 'young');
    },
  };
}

export type LoadedBatch = ReturnType<typeof toLoadedBatch>;

function toLoadedKeys(intake: Intake, lines: DirectLines, keyed: number, assertLoaded: AssertCurrent): LoadedBatch {
  const { duckdb, plain } = intake;
  const converted: Converted = { events: keyed, badLines: [], lineOf: (rowid) => rowid, refused: undefined };
  const loaded = toLoadedBatch(intake, converted, assertLoaded);
  return {
    ...loaded,
    async classify(known) {
      const classified = await loaded.classify(known);
      const { repeats, failedLines } = classified;
      const rows = lines.events - repeats;
      return {
        ...classified,
        rows,
        async writeYoung(file, availableAtMs) {
          assertLoaded();
          if (failedLines.length > 0 || rows === 0) return undefined;
          if (repeats > 0) await markSkippedLines(duckdb);
          return plain.write({ ...lines, repeats }, file, availableAtMs);
        },
      };
    },
  };
}

/** Creates an engine's tables for one batch at a time. `slices` spills known keys. Errors: `sql`, `memory`. */
export async function openBatchTables(
  duckdb: Duckdb,
  enricher?: Enricher,
  slices?: SpilledKeysOptions,
  mask: KeyMask = 0,
) {
  await createDedupeTables(duckdb);
  const keys = createKeyTable(duckdb, mask, slices);
  const nextBatch = createGenerations('the tables have a newer batch');
  const enrichment = enricher === undefined ? undefined : createBatchEnrichment(duckdb, enricher);
  const plain = createDirectWriter(duckdb, enrichment);
  const intake: Intake = { duckdb, keys, enrichment, plain };
  let expectsKeys = false;
  return {
    keys,
    readKeys: (file: DataFile, take: (hashes: KeyHashes) => void) => readFileKeys(duckdb, file, take),
    /** Writes a spool by the direct path. Undefined without a file if a line is not plain, or keys are likely. */
    writePlain: async (lines: DirectLines, file: string, availableAtMs: number) =>
      expectsKeys ? undefined : plain.write(lines, file, availableAtMs),
    /**
     * Loads the keyed lines of a spool. After classification `writeYoung` writes all lines by the direct path, or
     * returns undefined without a file. Undefined if the batch needs `load`.
     */
    async loadKeyed(lines: DirectLines): Promise<LoadedBatch | undefined> {
      const assertLoaded = nextBatch();
      const keyed = await undefinedIfRejected(() => loadKeyedLines(duckdb, lines.file));
      assertLoaded();
      const wasExpected = expectsKeys;
      expectsKeys = keyed !== undefined && keyed > 0;
      return expectsKeys || (keyed === 0 && wasExpected)
        ? toLoadedKeys(intake, lines, keyed ?? 0, assertLoaded)
        : undefined;
    },
    /** Loads a spool. After a bad line, or with `eachLine`, checks lines separately. Errors: the engine's. */
    async load(spool: string, events: number, eachLine = false): Promise<LoadedBatch> {
      const assertLoaded = nextBatch();
      const converted = await convertSpool(duckdb, spool, events, eachLine);
      assertLoaded();
      return toLoadedBatch(intake, converted, assertLoaded);
    },
  };
}

export type BatchTables = Awaited<ReturnType<typeof openBatchTables>>;
