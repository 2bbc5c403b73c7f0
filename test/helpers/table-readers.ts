import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { onTestFinished } from 'vitest';
import { findPythonDuckdb, findPythonEngines, findPythonSpark } from './python-engines.ts';
import { pause } from '../../src/runtime/async/retry.ts';

/*
 * Other engines that read the table of the events in a bucket, each in its own process. Each line of standard input
 * asks for one read, which prints the rows, their distinct ids, and counts with and without filters.
 */
const script = `
import json, os, sys
# Java prints to standard output too.
answers = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
engine, endpoint, key, secret, url, app = sys.argv[1:]
app = int(app)

def delta_rs():
  import pyarrow.compute as pc
  import pyarrow.dataset as ds
  from deltalake import DeltaTable
  options = {
    'AWS_ENDPOINT_URL': endpoint, 'AWS_ACCESS_KEY_ID': key, 'AWS_SECRET_ACCESS_KEY': secret, 'AWS_REGION': 'us-east-1',
    'AWS_ALLOW_HTTP': 'true', 'AWS_VIRTUAL_HOSTED_STYLE_REQUEST': 'false',
  }
  def read():
    table = DeltaTable(url + '/events', storage_options=options)
    data = table.to_pyarrow_dataset()
    rows = data.to_table(columns=['event_id', 'id_app', 'custom_event_name'])
    name = pc.max(rows['custom_event_name']).as_py()
    return {
      'rows': len(rows),
      'ids': pc.count_distinct(rows['event_id']).as_py(),
      'ofApp': pc.sum(pc.equal(rows['id_app'], app)).as_py() or 0,
      'ofName': pc.sum(pc.equal(rows['custom_event_name'], name)).as_py() or 0,
      'filteredByApp': data.count_rows(filter=ds.field('id_app') == app),
      'filteredByName': data.count_rows(filter=ds.field('custom_event_name') == name),
    }
  return read

def duckdb():
  import duckdb, duckdb_extension_httpfs, glob
  folder = os.path.dirname(duckdb_extension_httpfs.__file__)
  [extension] = glob.glob(folder + '/extensions/v' + duckdb.__version__ + '/httpfs.duckdb_extension')
  def read():
    with duckdb.connect(config={'threads': 1, 'memory_limit': '1GB'}) as connection:
      connection.execute(f"LOAD '{extension}'")
      connection.execute(f"""CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1',
        ENDPOINT '{endpoint.split('//')[1]}', URL_STYLE 'path', USE_SSL false)""")
      [text] = connection.execute(f"SELECT content FROM read_text('{url}/snapshot.sql')").fetchone()
      connection.execute(text)
      rows, ids, of_app, name = connection.execute("""SELECT count(*), count(DISTINCT event_id),
        count(*) FILTER (WHERE id_app = ?), max(custom_event_name) FROM events""", [app]).fetchone()
      count = lambda filter, value: connection.execute(
        f'SELECT count(*) FROM events WHERE {filter} = ?', [value]).fetchone()[0]
      return {
        'rows': rows, 'ids': ids, 'ofApp': of_app, 'ofName': 1,
        'filteredByApp': count('id_app', app), 'filteredByName': count('custom_event_name', name),
      }
  return read

def spark():
  import glob
  from pyspark.sql import SparkSession, functions
  builder = SparkSession.builder.master('local[1]')
  for name, value in {
    'spark.ui.enabled': 'false',
    'spark.ui.showConsoleProgress': 'false',
    'spark.databricks.delta.snapshotPartitions': '1',
    'spark.log.level': 'ERROR',
    'spark.driver.memory': '1g',
    'spark.driver.bindAddress': '127.0.0.1',
    'spark.driver.host': '127.0.0.1',
    'spark.sql.shuffle.partitions': '1',
    'spark.jars': ','.join(glob.glob(sys.prefix + '/ivy/jars/*.jar')),
    'spark.sql.extensions': 'io.delta.sql.DeltaSparkSessionExtension',
    'spark.sql.catalog.spark_catalog': 'org.apache.spark.sql.delta.catalog.DeltaCatalog',
    'spark.hadoop.fs.s3a.endpoint': endpoint,
    'spark.hadoop.fs.s3a.endpoint.region': 'us-east-1',
    'spark.hadoop.fs.s3a.access.key': key,
    'spark.hadoop.fs.s3a.secret.key': secret,
    'spark.hadoop.fs.s3a.path.style.access': 'true',
  }.items():
    builder = builder.config(name, value)
  session = builder.getOrCreate()
  def read():
    table = session.read.format('delta').load(url.replace('s3:', 's3a:') + '/events')
    of_app = table['id_app'] == app
    rows, ids, found, name = table.agg(
      functions.count('*'),
      functions.count_distinct('event_id'),
      functions.count_if(of_app),
      functions.max('custom_event_name'),
    ).first()
    return {
      'rows': rows, 'ids': ids, 'ofApp': found, 'ofName': 1,
      'filteredByApp': table.where(of_app).count(),
      'filteredByName': table.where(table['custom_event_name'] == name).count(),
    }
  return read

read = {'delta-rs': delta_rs, 'DuckDB': duckdb, 'Spark': spark}[engine]()
for _ in sys.stdin:
  try:
    answer = read()
  except Exception as error:
    answer = {'error': f'{type(error).__name__}: {error}'}
  print(json.dumps(answer), file=answers, flush=True)
`;

type Engine = 'delta-rs' | 'DuckDB' | 'Spark';

interface Answer {
  readonly rows: number;
  readonly ids: number;
  readonly ofApp: number;
  readonly ofName: number;
  readonly filteredByApp: number;
  readonly filteredByName: number;
}

export interface TableReadersOptions {
  readonly endpoint: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
  /** Address of the lake, as `s3://bucket/lake`. */
  readonly url: string;
  /** An app with few events, as a filter. */
  readonly idApp: number;
  /** Returns the number of events that were sent until now: more cannot be in the table. */
  readonly sent: () => number;
  /** Reports whether the S3 server was away at any time since then (`performance.now()`). */
  readonly wasAwaySince: (at: number) => boolean;
  /** Time for which replaced files stay, ms: a read that takes longer may miss one. */
  readonly retentionMs: number;
}

/** Reads of one engine. */
export interface ReaderReport {
  readonly engine: Engine;
  readonly reads: number;
  /** Reads that were repeated, because the server was away or a file was removed after the retention time. */
  readonly away: number;
  readonly removed: number;
  readonly slowestMs: number;
  /** Rows of the last read. */
  readonly rows: number;
  /** What contradicts the rules of a read, with its time. */
  readonly wrong: readonly string[];
}

export interface TableReaders {
  /** Reads once more with each engine, ends them, and returns the reports. */
  stop(): Promise<readonly ReaderReport[]>;
}

/** Part of the time that a reader works; the rest is for the tested hosts. */
const share = 0.2;
const leastPauseMs = { 'delta-rs': 2000, DuckDB: 2000, Spark: 45_000 } as const satisfies Record<Engine, number>;
const retryMs = 2000;
const wrongShown = 20;

function findContradictions(found: Answer, before: number, sent: number): string[] {
  const { rows, ids, ofApp, ofName, filteredByApp, filteredByName } = found;
  return [
    ...(rows === ids ? [] : [`${rows} rows have ${ids} ids`]),
    ...(rows >= before ? [] : [`${rows} rows after ${before}`]),
    ...(rows <= sent ? [] : [`${rows} rows of ${sent} events sent`]),
    ...(filteredByApp === ofApp ? [] : [`${filteredByApp} rows by the filter of the app, not ${ofApp}`]),
    ...(filteredByName === ofName ? [] : [`${filteredByName} rows by the filter of the name, not ${ofName}`]),
  ];
}

function startReader(engine: Engine, python: string, options: TableReadersOptions) {
  const { endpoint, credentials, url, idApp, sent, wasAwaySince, retentionMs } = options;
  const words = [engine, endpoint, credentials.accessKeyId, credentials.secretAccessKey, url, String(idApp)];
  // The readers share the processors with the hosts, which they would not do elsewhere.
  const child = spawn('nice', ['-n', '15', python, '-c', script, ...words], { stdio: ['pipe', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const stopping = new AbortController();
  const report = { engine, reads: 0, away: 0, removed: 0, slowestMs: 0, rows: 0, wrong: [] as string[] };
  const note = (text: string): void => {
    process.stderr.write(`${engine}: ${text}\n`);
    if (report.wrong.length < wrongShown) report.wrong.push(`${new Date().toISOString()} ${text}`);
  };

  /** Reads once; returns the duration, ms, and whether there was an answer. */
  async function read(): Promise<{ readonly ms: number; readonly isAnswered: boolean }> {
    const startedAt = performance.now();
    child.stdin.write('\n');
    const { value, done } = await lines.next();
    if (done === true) throw new Error(`${engine} ended`);
    const ms = performance.now() - startedAt;
    const answer = JSON.parse(value) as Answer | { readonly error: string };
    if ('error' in answer) {
      if (wasAwaySince(startedAt)) report.away += 1;
      else if (ms >= retentionMs) report.removed += 1;
      else note(answer.error);
      return { ms, isAnswered: false };
    }
    for (const text of findContradictions(answer, report.rows, sent())) note(text);
    report.reads += 1;
    report.slowestMs = Math.max(report.slowestMs, Math.round(ms));
    report.rows = answer.rows;
    return { ms, isAnswered: true };
  }

  async function run(): Promise<ReaderReport> {
    while (!stopping.signal.aborted) {
      const { ms } = await read();
      await pause(Math.max(leastPauseMs[engine], ms * (1 / share - 1)), stopping.signal);
    }
    while (!(await read()).isAnswered && report.wrong.length < wrongShown) await pause(retryMs);
    child.stdin.end();
    if (child.exitCode === null) await once(child, 'exit');
    return report;
  }

  const running = run();
  running.catch(() => undefined);
  return {
    stop() {
      stopping.abort();
      return running;
    },
  };
}

/** Starts a reader of each engine that is available; a notice names the others. */
export async function startTableReaders(options: TableReadersOptions): Promise<TableReaders> {
  const engines = [
    ['delta-rs', await findPythonEngines()],
    ['DuckDB', await findPythonDuckdb()],
    ['Spark', await findPythonSpark()],
  ] as const;
  const readers = engines.flatMap(([engine, python]) =>
    python === undefined ? [] : [startReader(engine, python, options)],
  );
  return { stop: () => Promise.all(readers.map((reader) => reader.stop())) };
}
