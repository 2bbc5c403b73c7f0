import { randomUUID } from 'node:crypto';
import { noCrashPoint, type CrashPoint } from '../../runtime/crash-point.ts';
import { openDerivedFileFolder, type DerivedFile } from '../files/derived-files.ts';
import { isFileError, type Duckdb, type Statements } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { catalogueForm } from './catalogue-files.ts';
import { writeFileSummaries, type SummarySource } from './file-summaries.ts';

/** Number of packs above which they are merged, since the fold opens each. */
const maxPacks = 24;

const groupRows = 16_384;

async function readKeys(duckdb: Statements, file: string): Promise<ReadonlySet<string> | undefined> {
  try {
    const rows = await duckdb.rows(`SELECT DISTINCT key FROM read_parquet(${sqlText(file)})`);
    return new Set(rows.map((row) => String(row['key'])));
  } catch (error) {
    if (!(await isFileError(duckdb, error))) throw error;
    return undefined;
  }
}

function findOwners(packs: readonly DerivedFile[], wanted: ReadonlySet<string>): Map<string, string> {
  const owners = new Map<string, string>();
  for (const { file, covers } of packs)
    for (const key of covers) if (wanted.has(key) && !owners.has(key)) owners.set(key, file);
  return owners;
}

/** Opens the packs `packs/UUID.v3.parquet` of sealed files' parts; `key` is a file's hash. For one process. */
export async function openPacks(folder: string, duckdb: Duckdb, crashPoint: CrashPoint = noCrashPoint) {
  const packs = openDerivedFileFolder(folder, {
    end: `.${catalogueForm}.parquet`,
    readCovers: readKeys,
    nameOf: async () => randomUUID(),
    leftoverMs: 0,
    afterStep: (step) => crashPoint(`pack-${step}`),
  });

  async function rewrite(
    engine: Duckdb,
    some: readonly DerivedFile[],
    owners: ReadonlyMap<string, string>,
  ): Promise<void> {
    const keysByFile = some.map(({ file }) => [...owners].filter(([, owner]) => owner === file).map(([key]) => key));
    const sources = some.map(
      ({ file }, index) =>
        `SELECT * FROM read_parquet(${sqlText(file)}) WHERE key IN (SELECT unnest(${sqlList(keysByFile[index] ?? [])}))`,
    );
    const keys = new Set(keysByFile.flat());
    if (keys.size > 0)
      await packs.write(keys, (temporary) =>
        engine.run(
          `COPY (${sources.join(' UNION ALL ')}) TO ${sqlText(temporary)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE ${groupRows})`,
        ),
      );
    await packs.remove(some);
  }

  await packs.follow(duckdb);
  await packs.removeOthers();
  return {
    keys: packs.covered,
    files: () =>
      packs
        .list()
        .map(({ file }) => file)
        .toSorted((a, b) => (a < b ? -1 : 1)),
    /** Removes leftovers and parts of other files, and merges packs. Returns whether it removed parts. */
    async keep(engine: Duckdb, wanted: ReadonlySet<string>) {
      await packs.follow(engine);
      await packs.removeOthers();
      const owners = findOwners(packs.list(), wanted);
      const stale = packs.list().filter(({ file, covers }) => [...covers].some((key) => owners.get(key) !== file));
      for (const pack of stale) await rewrite(engine, [pack], owners);
      const all = packs.list();
      if (all.length > maxPacks) await rewrite(engine, all, findOwners(all, wanted));
      return stale.length > 0;
    },
    /** Removes unreadable packs, which are then recreated. Returns whether there were any. */
    async mend(engine: Statements) {
      const damaged: DerivedFile[] = [];
      for (const pack of packs.list())
        await engine
          .rows(`SELECT sum(hash(pack)) FROM read_parquet(${sqlText(pack.file)}) AS pack`)
          .catch(async (error: unknown) => {
            if (!(await isFileError(engine, error))) throw error;
            damaged.push(pack);
          });
      await packs.remove(damaged);
      return damaged.length > 0;
    },
    async add(engine: Duckdb, sources: readonly SummarySource[], emptyFile: string) {
      await packs.write(new Set(sources.map(({ key }) => key)), (temporary) =>
        writeFileSummaries(engine, sources, emptyFile, temporary),
      );
    },
  };
}

export type Packs = Awaited<ReturnType<typeof openPacks>>;
