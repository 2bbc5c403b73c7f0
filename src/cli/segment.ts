import { assertAccount } from '../access/listing.ts';
import { dataPaths, type Config } from '../config.ts';
import { addSegment } from '../operate/lists/add-segment.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { listSegments, removeSegment, type SegmentId } from '../segments/segment-store.ts';
import { segmentKinds, type SegmentKind } from '../segments/segments.ts';
import { parseId, parseWords, resolveConfig, type Command, type CommandContext } from './command.ts';
import { answerRefused, openList } from './list-input.ts';

const usages = {
  add: `tributary segment add ID --account N [--kind ${segmentKinds.join('|')}] FILE [--data DIR]`,
  list: 'tributary segment list [--account N] [--data DIR]',
  remove: 'tributary segment remove ID --account N [--data DIR]',
} as const;

function parseKind(text = 'custom'): SegmentKind {
  const kind = segmentKinds.find((known) => known === text);
  if (kind === undefined)
    throw new AppError('usage', `--kind must be one of ${segmentKinds.join(', ')}, not '${text}'`, {
      hint: `Usage: ${usages.add}`,
    });
  return kind;
}

/** Ids are texts in every answer. */
function showId<T extends SegmentId>({ idAccount, idSegment, ...rest }: T) {
  return { idSegment: String(idSegment), idAccount: String(idAccount), ...rest };
}

/** What lists and segments are made with. */
function toListOptions(config: Config, { stop }: CommandContext) {
  return { clock: createClock(config.clockOffsetSeconds), memoryMb: config.duckdbMemoryMb, signal: stop };
}

async function add(args: readonly string[], context: CommandContext): Promise<number> {
  const options = { account: { type: 'string' }, kind: { type: 'string' } } as const;
  const { values, positionals } = parseWords(args, ['ID', 'FILE'], options, usages.add);
  const segment = {
    idSegment: parseId(positionals[0], 'ID'),
    idAccount: parseId(values.account, '--account'),
    kind: parseKind(values.kind),
  };
  const config = resolveConfig(context.environment, { TRIBUTARY_DATA_DIR: values.data });
  const paths = dataPaths(config.dataDir);
  assertAccount(paths, segment.idAccount);
  const given = openList(positionals[1] ?? '', context);
  const added = await addSegment(paths.segments, segment, given, toListOptions(config, context));
  if ('badLines' in added) return answerRefused([added], context);
  context.answer(showId(added));
  return 0;
}

async function list(args: readonly string[], { environment, answer }: CommandContext): Promise<number> {
  const { values } = parseWords(args, [], { account: { type: 'string' } }, usages.list);
  const idAccount = values.account === undefined ? undefined : parseId(values.account, '--account');
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  for (const segment of await listSegments(dataPaths(config.dataDir).segments, idAccount)) {
    const { kind, ids, addedAt, sizeBytes: bytes } = segment;
    answer(showId({ idSegment: segment.idSegment, idAccount: segment.idAccount, kind, ids, bytes, addedAt }));
  }
  return 0;
}

async function remove(args: readonly string[], { environment, answer }: CommandContext): Promise<number> {
  const { values, positionals } = parseWords(args, ['ID'], { account: { type: 'string' } }, usages.remove);
  const segment = {
    idSegment: parseId(positionals[0], 'ID'),
    idAccount: parseId(values.account, '--account'),
  };
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  await removeSegment(dataPaths(config.dataDir).segments, segment);
  answer({ ...showId(segment), removed: true });
  return 0;
}

const verbs: Readonly<Record<string, (args: readonly string[], context: CommandContext) => Promise<number>>> = {
  add,
  list,
  remove,
};

/** `tributary segment add|list|remove`: the sets of users or devices that an account's exports can be filtered by. */
export const segmentCommand: Command = {
  name: 'segment',
  usage: Object.values(usages).join('\n'),
  summary: 'add, list and remove segments: sets of users or devices, for the idSegment filter of exports',
  details: [
    'ID          a whole number, which clients give as idSegment; a segment of the account that has it is replaced',
    '--account   whose segment it is: to other accounts it does not exist',
    '--kind      what the ids are: custom user ids (custom), or ids of devices of whichever kind (device)',
    'FILE        one id a line, also compressed by gzip; - for standard input',
  ],
  async run([verb, ...args], context) {
    const run = verb !== undefined && Object.hasOwn(verbs, verb) ? verbs[verb] : undefined;
    if (run === undefined)
      throw new AppError('usage', `'segment' takes ${Object.keys(verbs).join(', ')}, not '${verb ?? ''}'`, {
        hint: `Usage: ${Object.values(usages).join(', ')}`,
      });
    return run(args, context);
  },
};
