function refuse(): never {
  throw new Error('a route has a schema of the framework: check and render by ours (schema-registry.ts, openapi.ts)');
}

/**
 * Our routes have no schemas of the framework's: bodies are checked by the datasets' own, answers rendered by us. Said
 * so, Fastify does not load the compilers of them: 15 ms of processor time at each start of a process that serves.
 */
export const ownSchemas = {
  compilersFactory: { buildValidator: () => refuse, buildSerializer: () => refuse },
};
