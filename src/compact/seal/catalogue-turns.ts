import { describeError, isAppError } from '../../runtime/errors.ts';
import { cataloguePaths } from '../../lake/catalogue/catalogue-files.ts';
import { openPacks, type Packs } from '../../lake/catalogue/packs.ts';
import { listSources, type PartSource } from '../../lake/catalogue/parts.ts';
import {
  digestOf,
  findFolded,
  isWithdrawn,
  renewCatalogue,
  renewNotices,
  tidyCatalogue,
  withdrawCatalogue,
} from '../../lake/catalogue/renew.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import type { MaintenanceOptions, TableDependencies } from './maintenance-task.ts';

/** Keeps the catalogue of parameters near the sealed files, a piece in each turn. */
export interface CatalogueTurns {
  /** Takes out what is gone, makes what is missing for a while, and folds when it is time. Errors: the engine's, `disk`. */
  turn(duckdb: Duckdb, signal: AbortSignal): Promise<void>;
}

/** Time in one turn for files that are not in the catalogue yet: a year of them takes many turns, between which rows are sealed. */
const budgetMs = 2000;
/** Files, and rows, that are looked at together. */
const mostFiles = 64;
const mostRows = 2_000_000;
/** A fold, and a look for notices, read all parts: each waits for so many times what the last one took. */
const restAfter = 20;
const hourMs = 3_600_000;

/** The newest date whose events are sealed by now, unless they come late. */
function sealedDay(nowMs: number, sealAgeMs: number): string {
  return new Date(nowMs - 25 * hourMs - 2 * sealAgeMs).toISOString().slice(0, 10);
}

/** The files that are looked at next: those of the newest dates first. */
function nextBatch(missing: readonly PartSource[]): PartSource[] {
  let rows = 0;
  const end = missing.findIndex((source, index) => index > 0 && (rows += source.rows) > mostRows);
  return missing.slice(0, Math.min(mostFiles, end === -1 ? missing.length : end));
}

/** The parts as one process makes them. */
interface PartMaker {
  /** Takes out what is gone; says whether anything was. */
  keep(duckdb: Duckdb): Promise<boolean>;
  /** Makes what is missing for a while; returns how many are left. */
  add(duckdb: Duckdb, signal: AbortSignal): Promise<number>;
  /** Files that cannot be read: they are left out until the next start. */
  unreadable(): number;
}

function createPartMaker({ table, logger }: TableDependencies, packs: Packs): PartMaker {
  const unreadable = new Set<string>();

  async function add(duckdb: Duckdb, batch: readonly PartSource[], signal: AbortSignal): Promise<void> {
    const { emptyFile } = table.snapshot();
    try {
      await packs.add(duckdb, batch, emptyFile);
    } catch (error) {
      // A stop breaks off what runs: that says nothing of the files.
      if (signal.aborted || (!isAppError(error, 'sql') && !isAppError(error, 'memory'))) throw error;
      // Neither does an engine that has failed for good.
      await duckdb.rows(`SELECT count(*) AS n FROM read_parquet(${sqlText(emptyFile)})`);
      if (batch.length > 1) {
        for (const source of batch) await add(duckdb, [source], signal);
        return;
      }
      const [source] = batch;
      if (source !== undefined) unreadable.add(source.key);
      logger.warn({ file: source?.file, error: describeError(error) }, 'left out of the catalogue of parameters');
    }
  }

  return {
    keep: (duckdb) => packs.keep(duckdb, new Set(listSources(table.snapshot().files).map(({ key }) => key))),
    async add(duckdb, signal) {
      const sources = listSources(table.snapshot().files);
      const endMs = performance.now() + budgetMs;
      for (;;) {
        const keys = packs.keys();
        const missing = sources.filter(({ key }) => !keys.has(key) && !unreadable.has(key));
        if (missing.length === 0 || signal.aborted || performance.now() >= endMs) return missing.length;
        await add(duckdb, nextBatch(missing), signal);
      }
    },
    unreadable: () => unreadable.size,
  };
}

/** What the turns of a process know, from the first on. */
interface Opened {
  readonly packs: Packs;
  readonly parts: PartMaker;
}

/** Limits how often something is done, by the time that it took. */
interface Throttle {
  isDue(): boolean;
  run(work: () => Promise<void>): Promise<void>;
}

function createThrottle(leastMs: number): Throttle {
  let nextMs = 0;
  return {
    isDue: () => performance.now() >= nextMs,
    async run(work) {
      const begunMs = performance.now();
      await work();
      nextMs = performance.now() + Math.max(leastMs, restAfter * (performance.now() - begunMs));
    },
  };
}

/** How the fold in force stands to the parts: one from before an erasure, which waits for its version, is too old. */
async function judgeFold({ table, lakeDir }: TableDependencies, packs: Packs): Promise<'whole' | 'old' | 'too old'> {
  if (packs.files().length === 0) return (await isWithdrawn(lakeDir)) ? 'whole' : 'too old';
  const folded = await findFolded(lakeDir);
  if (folded === undefined || folded.tableVersion < (table.lake().forgetBefore ?? 0)) return 'too old';
  return folded.parts === digestOf(packs.keys()) ? 'whole' : 'old';
}

/** Creates the turns of the lake's leader. */
export function createCatalogueTurns(dependencies: TableDependencies, options: MaintenanceOptions): CatalogueTurns {
  const { table, clock, crashPoint, logger, lakeDir } = dependencies;
  const everyMs = Math.max(50, Math.min(options.sealAgeMs / 10, 30_000));
  const folds = createThrottle(everyMs);
  const looks = createThrottle(everyMs);
  const checks = createThrottle(everyMs);
  let opened: Opened | undefined;
  const startedMs = performance.now();
  /** The day, and the parts, that were last looked at for notices. */
  let noticed = '';
  /** Something was taken out, and the fold has it yet. */
  let mustFold = false;
  /** Nothing is left to do for this version of the table. */
  let settledVersion: number | undefined;

  async function open(duckdb: Duckdb): Promise<Opened> {
    await tidyCatalogue(lakeDir);
    const packs = await openPacks(cataloguePaths(lakeDir).packs, duckdb, crashPoint);
    return { packs, parts: createPartMaker(dependencies, packs) };
  }

  /** Whether somebody has taken the catalogue away, or damaged its record; asked now and then. */
  async function isGone({ packs }: Opened): Promise<boolean> {
    let isWhole = true;
    if (checks.isDue())
      await checks.run(async () => void (isWhole = (await judgeFold(dependencies, packs)) === 'whole'));
    return !isWhole;
  }

  async function fold(duckdb: Duckdb, { packs, parts }: Opened, tableVersion: number, missing: number): Promise<void> {
    if (packs.files().length === 0) return await withdrawCatalogue(lakeDir);
    const missingFiles = missing + parts.unreadable();
    await renewCatalogue(lakeDir, duckdb, packs, { tableVersion, missingFiles, crashPoint });
  }

  /** Not before what had waited for this process can be sealed: until then every volume seems to have fallen. */
  async function notice(duckdb: Duckdb, { packs }: Opened): Promise<void> {
    if (performance.now() - startedMs < 2 * options.sealAgeMs || !looks.isDue()) return;
    const nowMs = clock.nowMs();
    const day = sealedDay(nowMs, options.sealAgeMs);
    const now = `${day} ${digestOf(packs.keys())}`;
    if (now === noticed) return;
    await looks.run(async () => {
      for (const found of await renewNotices(lakeDir, duckdb, packs, { day, nowMs }))
        logger.info({ id: found.id, kind: found.kind, idApp: found.idApp }, 'notice of the catalogue');
    });
    noticed = now;
  }

  async function renew(duckdb: Duckdb, signal: AbortSignal): Promise<void> {
    // The version first: what is made below is of this one or a later one.
    const { version } = table.state();
    const known = (opened ??= await open(duckdb));
    if (version === settledVersion && !(await isGone(known))) return await notice(duckdb, known);
    // What was taken out must not stay in the fold for want of time, also where the fold then fails once.
    mustFold = (await known.parts.keep(duckdb)) || mustFold;
    const missing = await known.parts.add(duckdb, signal);
    if (signal.aborted) return;
    const state = await judgeFold(dependencies, known.packs);
    if (state === 'old' && !mustFold && !folds.isDue()) return;
    if (state !== 'whole') await folds.run(() => fold(duckdb, known, version, missing));
    mustFold = false;
    if (missing > 0) return;
    settledVersion = version;
    await notice(duckdb, known);
  }

  return {
    async turn(duckdb, signal) {
      try {
        await renew(duckdb, signal);
      } catch (error) {
        const isMended = !signal.aborted && isAppError(error, 'sql') && (await opened?.packs.mend(duckdb, signal));
        if (isMended !== true) throw error;
        settledVersion = undefined;
        logger.warn({ error: describeError(error) }, 'parts of the catalogue could not be read, and are made anew');
      }
    },
  };
}
