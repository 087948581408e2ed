"""The GPU and its tools: driver, workers, assemblers, disassembly, arrays."""
