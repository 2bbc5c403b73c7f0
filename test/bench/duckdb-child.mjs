// Runs one SQL statement in a separate DuckDB process and sends its duration to the parent. Then waits, so that the
// parent can read this process's peak memory. Its argument is JSON: { sql, threads }.
import process from 'node:process';
import { DuckDBInstance } from '@duckdb/node-api';

const { sql, threads } = JSON.parse(process.argv[2] ?? '');
const instance = await DuckDBInstance.create(':memory:', { threads: String(threads) });
const connection = await instance.connect();
await connection.run("SET TimeZone = 'UTC'");
const cpuBefore = process.cpuUsage();
const startedAt = performance.now();
const result = await connection.runAndReadAll(sql);
const seconds = (performance.now() - startedAt) / 1000;
const { user, system } = process.cpuUsage(cpuBefore);
process.once('disconnect', () => process.exit());
process.send?.({ seconds, cpuSeconds: (user + system) / 1e6, rows: Number(result.getRows()[0]?.[0]) });
