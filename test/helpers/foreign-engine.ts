import { copyFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { emptyFilePath, loadTableState } from '../../src/lake/log/snapshot.ts';
import { commitName, listLog, logFolder } from '../../src/lake/log/log-files.ts';
import type { TableState } from '../../src/lake/log/table-state.ts';
import { query } from './lake.ts';

/**
 * Another engine at the lake's table, which ignores the table's protocol. It writes commits with the actions of
 * delta-rs 1.6 and Spark, field for field, to the next number.
 */
export interface ForeignEngine {
  /** Commits these actions after a commitInfo; returns the version. */
  commit(operation: string, actions: readonly object[]): Promise<number>;
  /** Commits twice without an action, as a VACUUM does. */
  vacuum(): Promise<void>;
  /** Adds a file of new rows. */
  append(rows: string): Promise<void>;
  /**
   * Rewrites the matching rows of every live file into one file, which replaces those files. `dataChange`: false for an
   * OPTIMIZE.
   */
  rewrite(operation: string, dataChange: boolean, where?: string): Promise<void>;
}

const remove = (file: string, dataChange: boolean): object => ({
  remove: {
    path: file,
    dataChange,
    deletionTimestamp: Date.now(),
    extendedFileMetadata: true,
    partitionValues: {},
    size: 1,
  },
});

/** Opens the engine on a table. */
export function openForeignEngine(tableDir: string): ForeignEngine {
  const nextVersion = async (): Promise<number> => ((await listLog(tableDir)).commits.at(-1) ?? -1) + 1;

  async function commit(operation: string, actions: readonly object[]): Promise<number> {
    const version = await nextVersion();
    const commitInfo = {
      timestamp: 1_795_303_709_131,
      operation,
      operationParameters: {},
      engineInfo: 'delta-rs:py-1.6.6',
      clientVersion: 'delta-rs.py-1.6.6',
    };
    writeFileSync(
      path.join(logFolder(tableDir), commitName(version)),
      [{ commitInfo }, ...actions].map((action) => JSON.stringify(action)).join('\n'),
      { flag: 'wx' },
    );
    return version;
  }

  async function writeFile(sql: string, dataChange: boolean): Promise<object> {
    const name = `part-00000-${readdirSync(tableDir).length}-${Date.now()}-c000.snappy.parquet`;
    const [row] = await query(`COPY (${sql}) TO '${path.join(tableDir, name)}' (FORMAT parquet, RETURN_STATS true)`);
    const stats = JSON.stringify({ numRecords: Number(row?.['count']) });
    return {
      add: {
        path: name,
        partitionValues: {},
        size: Number(row?.['file_size_bytes']),
        modificationTime: Date.now(),
        dataChange,
        stats,
        tags: null,
        baseRowId: null,
      },
    };
  }

  return {
    commit,
    async vacuum() {
      await commit('VACUUM START', []);
      await commit('VACUUM END', []);
    },
    async append(rows) {
      await commit('WRITE', [await writeFile(rows, true)]);
    },
    async rewrite(operation, dataChange, where = 'true') {
      const files = [...(await loadTableState(tableDir)).files.keys()];
      const list = [emptyFilePath(tableDir), ...files.map((file) => path.join(tableDir, decodeURIComponent(file)))].map(
        (file) => `'${file}'`,
      );
      const add = await writeFile(
        `SELECT * FROM read_parquet([${list.join(', ')}], union_by_name = true, hive_partitioning = false) WHERE ${where}`,
        dataChange,
      );
      await commit(operation, [...files.map((file) => remove(file, dataChange)), add]);
    },
  };
}

/**
 * Returns the actions by which Spark marks rows of the first live file as deleted: a deletion vector, and the protocol
 * that it needs.
 */
export function deletionVectorActions(state: TableState): object[] {
  const [add] = state.files.values();
  const deletionVector = {
    storageType: 'u',
    pathOrInlineDv: 'ab^-aqEH.-t@S}K{vb[*k^',
    offset: 4,
    sizeInBytes: 40,
    cardinality: 1,
  };
  return [
    {
      protocol: {
        minReaderVersion: 3,
        minWriterVersion: 7,
        readerFeatures: ['deletionVectors'],
        writerFeatures: ['deletionVectors', 'tributary-writer'],
      },
    },
    { metaData: { ...state.metaData, configuration: { 'delta.enableDeletionVectors': 'true' } } },
    { remove: { ...add, deletionTimestamp: Date.now(), dataChange: true } },
    { add: { ...add, dataChange: true, deletionVector } },
  ];
}

/** Returns the actions by which an engine renames columns without rewriting files: column mapping. */
export function columnMappingActions(state: TableState): object[] {
  const { schemaString = '{}' } = state.metaData ?? {};
  const { fields } = JSON.parse(schemaString) as { fields: { name: string; metadata: object }[] };
  const mapped = fields.map((field, index) => ({
    ...field,
    name: field.name === 'age' ? 'years' : field.name,
    metadata: {
      ...field.metadata,
      'delta.columnMapping.id': index + 1,
      'delta.columnMapping.physicalName': field.name,
    },
  }));
  return [
    { protocol: { minReaderVersion: 2, minWriterVersion: 5 } },
    {
      metaData: {
        ...state.metaData,
        schemaString: JSON.stringify({ type: 'struct', fields: mapped }),
        configuration: { 'delta.columnMapping.mode': 'name', 'delta.columnMapping.maxColumnId': String(fields.length) },
      },
    },
  ];
}

/**
 * Writes the checksum files of Hadoop's file system next to the newest commit, and other leftovers. Returns their
 * names.
 */
export async function leaveChecksums(tableDir: string): Promise<string[]> {
  const version = (await listLog(tableDir)).commits.at(-1) ?? 0;
  const log = logFolder(tableDir);
  const names = [
    `.${commitName(version)}.crc`,
    commitName(version).replace('.json', '.crc'),
    '._last_checkpoint.crc',
    '_commit_1b4e28ba-2fa1-11d2-883f-0016d3cca427.json.tmp',
  ];
  for (const name of names) copyFileSync(path.join(log, commitName(version)), path.join(log, name));
  writeFileSync(path.join(tableDir, '.part-00000.snappy.parquet.crc'), 'crc');
  writeFileSync(path.join(tableDir, 'deletion_vector_1b4e28ba-2fa1-11d2-883f-0016d3cca427.bin'), 'dv');
  return [
    ...names.map((name) => path.join('_delta_log', name)),
    '.part-00000.snappy.parquet.crc',
    'deletion_vector_1b4e28ba-2fa1-11d2-883f-0016d3cca427.bin',
  ].toSorted();
}
