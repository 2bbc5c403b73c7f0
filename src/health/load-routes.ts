import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { text } from 'node:stream/consumers';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { isOperatorToken } from '../access/operator-token.ts';
import { datasets } from '../datasets/dataset.ts';
import { makeWorkFolder, removeTree, writeWorkFile } from '../runtime/files/work-files.ts';

/**
 * `POST /api/load/v1/<dataset>` on the operator's address: the body, a file of CSV, JSON lines or Parquet, is loaded as
 * `tributary load DATASET -` does it, by that command in a process of its own, to which it is passed on as it comes.
 *
 * Query: `app`, `maxBad`, `map` (JSON), `format`. Needs the operator's token: `Authorization: Bearer TOKEN`. Answers: 200
 * and 400 with the command's own answer, 401, 404 for another name, 409 while a file is loaded, 500.
 * Crash: a body that breaks off is never taken for a whole one: the command is killed before its input ends.
 */

/** The formats that a Content-Type names; others are recognized by the bytes. */
const formats: Readonly<Record<string, string>> = {
  'text/csv': 'csv',
  'application/x-ndjson': 'ndjson',
  'application/vnd.apache.parquet': 'parquet',
};

/** What the route works on. */
export interface LoadRouteOptions {
  /** The program's entry file. */
  readonly entry: string;
  readonly dataDir: string;
  readonly keysDir: string;
}

interface LoadQuery {
  readonly app?: string;
  readonly maxBad?: string;
  readonly map?: string;
  readonly format?: string;
}

/** The options of the command; what they may be is for the command to say. */
function toWords({ app, maxBad, format }: LoadQuery, contentType: string, mapFile: string | undefined): string[] {
  const chosen = format ?? formats[contentType.split(';', 1)[0]?.trim() ?? ''];
  return Object.entries({ app, 'max-bad': maxBad, format: chosen, map: mapFile }).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}=${value}`],
  );
}

/** Passes the body on. A body that breaks off kills the command: its input must not look whole. */
async function passOn(request: FastifyRequest, child: ChildProcess): Promise<void> {
  const { stdin } = child;
  if (stdin === null) return;
  // A command that refuses early reads no further.
  stdin.on('error', () => undefined);
  try {
    for await (const piece of request.raw) {
      if (stdin.writable && !stdin.write(piece)) await Promise.race([once(stdin, 'drain'), once(child, 'exit')]);
    }
  } catch {
    child.kill('SIGKILL');
  }
  if (request.raw.complete) stdin.end();
  else child.kill('SIGKILL');
}

/** The last line of the command's answer; undefined where it gave none. */
function parseAnswer(output: string): unknown {
  const line = output.trim().split('\n').at(-1) ?? '';
  return line === '' ? undefined : (JSON.parse(line) as unknown);
}

interface LoadAnswer {
  readonly status: number;
  readonly body: unknown;
}

type LoadRequest = FastifyRequest<{ Params: { dataset: string }; Querystring: LoadQuery }>;

/** Runs the command on the body; the answer is given when nothing of it is left. */
async function runLoad({ entry, dataDir }: LoadRouteOptions, request: LoadRequest): Promise<LoadAnswer> {
  const { dataset } = request.params;
  const { map } = request.query;
  const folder = path.join(tmpdir(), `tributary-load-${randomUUID()}`);
  await makeWorkFolder(folder);
  try {
    const mapFile = map === undefined ? undefined : path.join(folder, 'map.json');
    if (mapFile !== undefined) await writeWorkFile(mapFile, map ?? '');
    const words = toWords(request.query, request.headers['content-type'] ?? '', mapFile);
    const child = spawn(process.execPath, [entry, 'load', dataset, '-', '--data', path.resolve(dataDir), ...words], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const ended = once(child, 'exit') as Promise<[number | null]>;
    const [output, errors] = [text(child.stdout), text(child.stderr)];
    await passOn(request, child);
    const [code] = await ended;
    const body = parseAnswer(await output) ?? { error: (await errors).trim() };
    return { status: code === 0 ? 200 : code === 1 ? 400 : 500, body };
  } finally {
    await removeTree(folder);
  }
}

/** Gives the operator's address the route. One file is loaded at a time. */
export function addLoadRoute(options: LoadRouteOptions): (server: FastifyInstance) => void {
  let isLoading = false;
  return (server) => {
    void server.register((scope, _options, done) => {
      // The body stays in the request: it may be larger than memory.
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
      scope.post<{ Params: { dataset: string }; Querystring: LoadQuery }>(
        '/api/load/v1/:dataset',
        { bodyLimit: Number.MAX_SAFE_INTEGER },
        async (request, reply) => {
          const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
          if (token === undefined || !(await isOperatorToken(options.keysDir, token)))
            return reply
              .code(401)
              .send({ error: "The operator's token is needed: 'tributary key operator' makes one." });
          const { dataset } = request.params;
          if (datasets.get(dataset)?.isLoadable !== true)
            return reply.code(404).send({ error: `There is no dataset ${dataset} that files can be loaded into.` });
          if (isLoading) return reply.code(409).send({ error: 'A file is being loaded: try again when it is done.' });
          isLoading = true;
          const { status, body } = await runLoad(options, request).finally(() => {
            isLoading = false;
          });
          return reply.code(status).send(body);
        },
      );
      done();
    });
  };
}
