/**
 * Estimates and previews of exports.
 *
 * In: a plan (jobs/worker-messages.ts), one snapshot of the lake. Out: one outcome. No file has a name: no work folder,
 * no spilling; lists are read in place, after a comparison of their hash.
 * Invariant: a result is that of the version it names.
 * Crash: nothing is left.
 */
import path from 'node:path';
import { getSelector } from '../../../datasets/dictionaries.ts';
import { describeError, isAppError, isDamage } from '../../../runtime/errors.ts';
import { findSize } from '../../../runtime/files/file-checks.ts';
import { unnamedFolder } from '../../../runtime/files/work-files.ts';
import type { LookOutcome, LookPlan, Preview } from '../../jobs/worker-messages.ts';
import { assertListWhole, describeBasis, findBasis } from '../basis.ts';
import { planSlices, type Slice } from '../copy-slices.ts';
import { chooseFormat } from '../formats/format.ts';
import { planQuery } from '../query.ts';
import { openQueryEngine } from '../query-engine.ts';
import { before, createReadFiles, createVerify, pathsOf, prepare, type Verify } from '../read-files.ts';
import { LimitError, watch } from '../watch-statement.ts';
import { estimate, type Look } from './estimate.ts';

/** Enough for several row groups. */
const engineMemoryMb = 384;
/** Tries, since files that are replaced meanwhile may be removed soon. */
const attempts = 3;
const tooLarge = 'The preview needs more memory than it may take. Ask for fewer days or apps, or without order';
/** Rows of a preview, at most. */
const previewRows = 20;

/**
 * Splits the files so that the first piece has the first rows. Derived rows and `order=time` need all files in one
 * piece.
 */
function piecesOf({ plan: { request }, query: { preparation }, read: { files } }: Look): Slice[] {
  if (preparation !== undefined || request.order === 'time' || files.length === 0) return [{ files }];
  return planSlices(files).filter(({ rows }) => rows === undefined || rows.from === 0);
}

/** Reads the first rows of a result, cells as in CSV, from as few files as possible. */
async function preview(look: Look): Promise<Omit<Preview, 'basis'>> {
  const { plan, basis, query, engine, read, verify } = look;
  await prepare({ engines: [engine], read, verify }, query, { plan, ...basis });
  const { sql, values } = query.select;
  // One more row shows whether there are more.
  const wanted = previewRows + 1;
  const rows: (string | null)[][] = [];
  for (const { files } of piecesOf(look)) {
    const left = wanted - rows.length;
    if (left === 0) break;
    await verify(files);
    const first = { sql: `SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (${sql} LIMIT ${left})`, values };
    const reading = engine.rows(first, pathsOf(basis, { files }));
    const found = await watch(engine, before({ plan }), () => undefined, reading);
    rows.push(...found.map((row) => Object.values(row).map((cell) => (typeof cell === 'string' ? cell : null))));
  }
  const columns = plan.request.selectors.map((name) => getSelector(name).name);
  return { columns, rows: rows.slice(0, previewRows), isCut: rows.length > previewRows };
}

/** Compares the sizes of files, and the hash only if a size differs. */
function createSizeCheck(verify: Verify): Verify {
  return async (files) => {
    for (const file of files) if ((await findSize(file.absolutePath)) !== file.sizeBytes) await verify([file]);
  };
}

async function answerLook(plan: LookPlan): Promise<LookOutcome> {
  const { request, apps, segment, titles, tableDir, limits } = plan;
  const basis = await findBasis(plan);
  const lists = [segment, titles].flatMap((list) => list ?? []);
  for (const list of lists) await assertListWhole(list, list.file);
  const isEstimate = plan.look === 'estimate';
  // A sample is the same in any order.
  const { order: _order, ...unordered } = request;
  const query = isEstimate
    ? planQuery({ ...plan, request: unordered }, basis, { lean: true, cells: chooseFormat(request).cells })
    : planQuery(plan, basis, { lean: true, cells: 'text' });
  const engine = await openQueryEngine({
    apps,
    inline: query.inline,
    folders: [tableDir, unnamedFolder, ...lists.map(({ file }) => path.dirname(file))],
    tempDir: '',
    tempMaxBytes: 0,
    memoryMb: Math.min(limits.memoryMb, engineMemoryMb),
    threads: limits.threads,
  });
  try {
    const read = createReadFiles({ plan, ...basis }, query);
    const verify = createVerify({ plan, ...basis });
    const about = { plan, basis, query, engine, read, verify: isEstimate ? createSizeCheck(verify) : verify };
    const describe = () => describeBasis(plan, basis);
    if (!isEstimate) return { kind: 'preview', preview: { ...(await preview(about)), basis: await describe() } };
    // If a file cannot be read, its hash shows why.
    const found = await estimate(about).catch((error: unknown) => verify(read.files).then(() => Promise.reject(error)));
    return { kind: 'estimate', estimate: { ...found, basis: await describe() } };
  } finally {
    engine.close();
  }
}

/** Runs an estimate or a preview. Never throws. */
export async function runLook(plan: LookPlan): Promise<LookOutcome> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await answerLook(plan);
    } catch (error) {
      if (error instanceof LimitError) return { kind: 'failed', reason: 'user', error: error.message };
      if (isAppError(error, 'memory')) return { kind: 'failed', reason: 'user', error: tooLarge };
      const mayPass = isAppError(error) && error.retryable && attempt < attempts;
      if (!mayPass)
        return { kind: 'failed', reason: isDamage(error) ? 'damage' : 'error', error: describeError(error) };
    }
  }
}
