/**
 * Queries about the data of an account's apps: events by day and kind, fill rates of fields, parameters of custom
 * events.
 *
 * In: a plan (jobs/worker-messages.ts), the newest version of the tables. Out: one outcome; nothing is written.
 * Invariant: only rows of the plan's apps are counted, exactly; what was not counted is stated.
 * Crash: nothing is left.
 */
import { datasets, events, type Dataset } from '../../../datasets/dataset.ts';
import { readCurrentCatalogue } from '../../../lake/catalogue/current-catalogue.ts';
import { listTables } from '../../../lake/lake.ts';
import { describeError, isAppError, isDamage } from '../../../runtime/errors.ts';
import type { DataOutcome, DataPlan, DataQuestion } from '../../jobs/worker-messages.ts';
import { openQueryEngine, type QueryEngine } from '../query-engine.ts';
import { chooseFiles, countDays, countFields, sumDays } from './count-events.ts';

const engineMemoryMb = 384;
/** Tries, since files that are replaced meanwhile may be removed soon. */
const attempts = 3;

async function withEngine<T>(plan: DataPlan, work: (engine: QueryEngine) => Promise<T>): Promise<T> {
  const engine = await openQueryEngine({
    apps: plan.apps,
    inline: false,
    folders: [plan.lakeDir],
    tempDir: '',
    tempMaxBytes: 0,
    memoryMb: Math.min(plan.limits.memoryMb, engineMemoryMb),
    threads: plan.limits.threads,
  });
  try {
    return await work(engine);
  } finally {
    engine.close();
  }
}

async function findVolume(
  plan: DataPlan,
  { dates }: Extract<DataQuestion, { ask: 'volume' }>,
  engine: QueryEngine,
): Promise<DataOutcome> {
  const counts = [];
  let version = -1;
  for (const dataset of await listTables(plan.lakeDir)) {
    const chosen = await chooseFiles(plan, dataset, dates);
    if (dataset === events) version = chosen.snapshot.version;
    counts.push(...(await countDays(engine, chosen, plan, dates)));
  }
  return { kind: 'volume', volume: { version, days: sumDays(counts) } };
}

/** Returns the dataset of a kind: the events, or the one of that table. */
function datasetOf(kind: string): Dataset {
  return events.kinds.includes(kind) ? events : (datasets.get(kind) ?? events);
}

async function findFields(
  plan: DataPlan,
  { kind, dates }: Extract<DataQuestion, { ask: 'fields' }>,
  engine: QueryEngine,
): Promise<DataOutcome> {
  const dataset = datasetOf(kind);
  const chosen = await chooseFiles(plan, dataset, dates, dataset === events ? [kind] : undefined);
  const found = await countFields(engine, chosen, plan, { dataset, kind, dates });
  return { kind: 'fields', fields: { version: chosen.snapshot.version, ...found } };
}

async function findCatalogue(
  { apps, lakeDir }: DataPlan,
  { dates, customEventName, days: most }: Extract<DataQuestion, { ask: 'catalogue' }>,
): Promise<DataOutcome> {
  const idApp = apps[0]?.idApp ?? 0;
  const { customEvents, ...catalogue } = await readCurrentCatalogue(lakeDir, { idApp, dates, customEventName });
  const cut = customEvents.map(({ days, ...event }) => ({ ...event, days: days.slice(0, most) }));
  return { kind: 'catalogue', catalogue: { ...catalogue, customEvents: cut } };
}

/** Runs a query. Never throws. */
export async function answerQuestion(plan: DataPlan): Promise<DataOutcome> {
  const { question } = plan;
  for (let attempt = 1; ; attempt += 1) {
    try {
      if (question.ask === 'catalogue') return await findCatalogue(plan, question);
      return await withEngine(plan, (engine) =>
        question.ask === 'volume' ? findVolume(plan, question, engine) : findFields(plan, question, engine),
      );
    } catch (error) {
      if (attempt < attempts && !isAppError(error, 'memory')) continue;
      return { kind: 'failed', reason: isDamage(error) ? 'damage' : 'error', error: describeError(error) };
    }
  }
}
