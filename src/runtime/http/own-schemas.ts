function refuse(): never {
  throw new Error('a route has a schema of the framework: check and render by ours (schema-registry.ts, openapi.ts)');
}

/**
 * Our routes have no schemas of the framework's: bodies are checked by the datasets' own, answers rendered by us. Said
 * so, Fastify does not load the compilers of them, which were an eighth of the CPU time in which a process starts.
 */
export const ownSchemas = {
  compilersFactory: { buildValidator: () => refuse, buildSerializer: () => refuse },
};
